#include "gpt/diagnose/update_time.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>

#include "gpt/core/format.h"
#include "gpt/device/cpu_threads.h"
#include "gpt/diagnose/speed_check.h"
#include "gpt/distributed/sum_speed.h"
#include "gpt/plan/card_estimate.h"
#include "gpt/plan/trial.h"

namespace gpt {
namespace {

std::optional<plan::Trial> try_update(const UpdateFacts& facts, const Config& config) {
  constexpr double kTrialSeconds = 5;
  plan::ActivationForm whole = facts.form;
  whole.model_parts = whole.stages = 1;  // a part of a model is not tried alone
  const auto largest = plan::largest_batch_size(config.model, config.training, whole, facts.free_memory);
  if (!largest) return std::nullopt;
  return plan::try_steps({config, *facts.corpus, facts.device, facts.precision}, facts.product_speed, *largest,
                         kTrialSeconds);
}

// The step is what the busiest process computes so far, of the whole model. `one`: seconds of an update of one process, or 0.
void add_processes(double one, const std::string& source, const plan::Transfer& transfer, int64_t cores,
                   plan::ProcessesPlan& several, plan::StepTime& step) {
  several.one = one;
  const double of_part = step.seconds * several.slowest_stage / static_cast<double>(several.model_parts);
  several.computing =
      plan::seconds_together(of_part, several.processes, several.threads, cores) / (1 - several.bubble());
  several.sending = several.sent / transfer.bytes_per_second;
  several.computing_source =
      several.stages > 1 ? fmt::format("{} as a whole; this is the slowest stage's part, and its waiting", source)
      : several.model_parts == 1 ? source
                                 : fmt::format("{}, and divided by {}", source, several.model_parts);
  several.sending_source = transfer.source;
  step.seconds = several.seconds();
  step.source += fmt::format(", with {} of sending between {} processes", format_short_duration(several.sending),
                             several.processes);
}

}  // namespace

std::optional<UpdateTime> time_update(const UpdateFacts& facts) {
  const int64_t processes = facts.config.distributed.processes;
  double load = 0;
  if (getloadavg(&load, 1) != 1) load = 0;
  const Config part = plan::part_of_busiest(facts.config, facts.config.distributed.data_processes());
  const auto trial = try_update(facts, part);
  if (!trial) return std::nullopt;
  return UpdateTime{plan::step_time(*trial, facts.config),
                    check_speed(part, facts.device, facts.precision,
                                {.step_seconds = trial->step_seconds,
                                 .product_speed = facts.product_speed,
                                 .peak = facts.device.peak_flops(facts.precision.dtype),
                                 .attention = facts.attention,
                                 .threads = at::get_num_threads(),
                                 .cores = std::max<int64_t>(1, facts.cores / processes),
                                 .load = load / static_cast<double>(processes)})};
}

void compare_with_one(const UpdateFacts& facts, plan::ProcessesPlan& several, plan::StepTime& step) {
  const bool is_cpu = facts.device.device.is_cpu(),
             is_narrowed = facts.config.distributed.reduce_dtype == ReduceDtype::bfloat16;
  const plan::Transfer transfer =
      is_cpu
          ? plan::Transfer{distributed::measure_sum_speed(several.processes, is_narrowed ? at::kBFloat16 : at::kFloat),
                           "measured over the loopback"}
          : plan::estimate_transfer(facts.device);
  Config undivided = facts.config;
  undivided.training = facts.undivided;
  use_cpu_threads(undivided.threads);
  const auto one = try_update(facts, undivided);
  use_cpu_threads(undivided.threads, several.processes);
  add_processes(one ? one->step_seconds : 0, is_cpu ? "tried without the others beside it" : "tried on one GPU",
                transfer, facts.cores, several, step);
}

UpdateTime estimate_update(const UpdateFacts& facts, const Card& card, plan::ProcessesPlan& several) {
  const auto estimate = [&](const TrainingConfig& training) {
    return plan::estimate_step(facts.config.model, training, facts.form, card, facts.precision.dtype);
  };
  const Config part = plan::part_of_busiest(facts.config, facts.config.distributed.data_processes());
  const plan::StepEstimate of_part = estimate(part.training);
  plan::StepTime step{of_part.total(), plan::tokens_per_step(facts.config), describe(of_part)};
  if (several.processes > 1)
    add_processes(estimate(facts.undivided).total(), "estimated", plan::estimate_transfer(facts.device), facts.cores,
                  several, step);
  return {step};
}

}  // namespace gpt
