#include "gpt/plan/processes.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpt/core/format.h"
#include "gpt/parallel/division.h"
#include "gpt/parallel/pipeline_schedule.h"
#include "gpt/plan/estimates.h"
#include "gpt/plan/sent_bytes.h"

namespace gpt::plan {
namespace {

// What costs most of the time that N processes take beyond an Nth of one's.
std::string what_limits(const ProcessesPlan& plan) {
  const auto processes = static_cast<double>(plan.processes), micro_batches = static_cast<double>(plan.micro_batches);
  const double part = plan.one * static_cast<double>(plan.most_micro_batches()) / micro_batches /
                      static_cast<double>(plan.model_parts * plan.stages),
               uneven = part - plan.one / processes, waiting = plan.computing * plan.bubble(),
               slower = plan.computing - part - waiting;
  if (plan.stages > 1 && waiting >= std::max({plan.sending, uneven, slower})) {
    return fmt::format(
        "stages that wait for each other for {:.0f} % of the time; more micro-batches in an update, as a "
        "smaller batch_size makes them, would shorten it",
        100 * plan.bubble());
  }
  if (plan.sending >= std::max(uneven, slower)) {
    return fmt::format("sending, which takes {:.0f} % of a step{}", 100 * plan.sending / plan.seconds(),
                       plan.may_send_less ? "; distributed.reduce_dtype: bfloat16 would halve it" : "");
  }
  if (uneven >= slower) {
    return fmt::format("the {} of an update, which {} processes cannot share evenly",
                       plural(plan.micro_batches, "micro-batch"), plan.processes);
  }
  return plan.threads > 0 ? "the cores, which they share" : "the update of the weights, which each computes whole";
}

// What a process computes of its micro-batches.
std::string share_of_model(const ProcessesPlan& plan) {
  const std::string part = plan.model_parts == 1   ? "the model for "
                           : plan.model_parts == 2 ? "half of the model for "
                                                   : fmt::format("1/{} of the model for ", plan.model_parts);
  if (plan.stages > 1) return fmt::format("one of {} stages of {}", plan.stages, part);
  return plan.model_parts == 1 ? "" : part;
}

std::string recommendation(const ProcessesPlan& plan) {
  const double gain = plan.gain();
  const std::string faster = plan.faster.empty() ? "" : "; " + plan.faster;
  if (gain < 1) {
    return fmt::format("one: with {} a step takes {} times as long, because of {}{}", plan.processes,
                       format_number(1 / gain), what_limits(plan), faster);
  }
  // On a CPU one of them was tried without the others.
  return fmt::format("{}: {}{} times the tokens/s of one, limited by {}{}", plan.processes,
                     plan.threads > 0 ? "at most " : "", format_number(gain), what_limits(plan), faster);
}

}  // namespace

void keep_busiest_part(UpdateConfig& config, int64_t processes) {
  int64_t& micro_steps = config.training.gradient_accumulation_steps;
  GradientDtype& gradients = config.training.precision.gradient_dtype;
  if (gradients == GradientDtype::automatic && micro_steps > 1)
    gradients = GradientDtype::float32;  // of the whole update
  micro_steps = (micro_steps + processes - 1) / processes;
  config.distributed.lanes = parallel::lanes_of_each(config.distributed.lanes, processes);
}

double seconds_together(double alone, int64_t processes, int64_t threads, int64_t cores) {
  return alone * std::max(1.0, static_cast<double>(processes * threads) / static_cast<double>(cores));
}

double ProcessesPlan::bubble() const { return parallel::bubble(stages, most_micro_batches()); }

ProcessesPlan plan_processes(const UpdateConfig& config, bool end_to_end) {
  const DistributedConfig& distributed = config.distributed;
  return {.processes = distributed.processes,
          .model_parts = distributed.tensor_parallel,
          .stages = distributed.pipeline_parallel,
          .micro_batches = config.training.gradient_accumulation_steps,
          .sent = sent_bytes(config, end_to_end, distributed.processes),
          .may_send_less = distributed.reduce_dtype == ReduceDtype::float32 && distributed.lanes == 1 &&
                           distributed.model_processes() == 1 &&
                           device::gradient_type(config.training, end_to_end) == at::kFloat};
}

Check check_processes(const ProcessesPlan& plan) {
  const int64_t most = plan.most_micro_batches();
  std::string detail =
      fmt::format("{} {}: each takes about {}, computes {}{} of the {} of an update, and sends {}", plan.processes,
                  plan.threads > 0 ? "with " + plural(plan.threads, "thread") : "on a GPU each",
                  format_bytes(plan.memory),
                  (plan.micro_batches % (plan.processes / (plan.model_parts * plan.stages)) > 0 ? "up to " : "") +
                      share_of_model(plan),
                  most, plural(plan.micro_batches, "micro-batch"), format_bytes(plan.sent));
  if (plan.stages > 1)
    detail += fmt::format("; each waits for {:.0f} % of an update, at its beginning and its end", 100 * plan.bubble());
  if (plan.computing > 0) {
    detail +=
        fmt::format("; a step is {} of computing ({})", format_short_duration(plan.computing), plan.computing_source);
  }
  if (plan.sending > 0)
    detail +=
        fmt::format(" and {} of sending beyond it ({})", format_short_duration(plan.sending), plan.sending_source);
  const bool is_compared = plan.one > 0 && plan.sending > 0;
  Check check = is_compared && plan.gain() < 1
                    ? warned("processes", detail, "set distributed.processes: 1, which is faster")
                    : passed("processes", detail);
  check.values = {{"processes", plan.processes},         {"model_parts", plan.model_parts},
                  {"micro_batches", plan.micro_batches}, {"most_micro_batches", most},
                  {"bytes_of_each", plan.memory},        {"bytes_sent_per_update", plan.sent}};
  if (plan.stages > 1) {
    check.values.emplace_back("stages", plan.stages);
    check.values.emplace_back("bubble", plan.bubble());
  }
  if (plan.threads > 0) check.values.emplace_back("threads", plan.threads);
  if (plan.computing > 0) check.values.emplace_back("computing_seconds", plan.computing);
  if (plan.sending > 0) check.values.emplace_back("sending_seconds", plan.sending);
  if (!is_compared) return check;
  check.values.emplace_back("seconds_of_one", plan.one);
  check.values.emplace_back("gain", plan.gain());
  if (!plan.faster.empty()) check.values.emplace_back("faster", plan.faster);
  check.answer = {"How many processes?", recommendation(plan)};
  return check;
}

}  // namespace gpt::plan
