#include "gpt/diagnose/update_time.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "gpt/core/format.h"
#include "gpt/device/cpu_threads.h"
#include "gpt/diagnose/speed_check.h"
#include "gpt/plan/card_estimate.h"
#include "gpt/plan/network.h"
#include "gpt/plan/scaling.h"
#include "gpt/plan/step_schedule.h"
#include "gpt/plan/trial.h"

namespace gpt::diagnose {
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

// Seconds of an update of one process, or 0, and what one of several computes of its micro-batches, with where both are known from.
struct Computing {
  double one = 0;
  std::function<plan::StepParts(const Config& config, const plan::ActivationForm& form)> parts;
  std::string source;
};

// The settings of `fastest` that are others than those of `now`.
std::string settings_that_differ(const Config& fastest, const Config& now) {
  const DistributedConfig &to = fastest.distributed, &from = now.distributed;
  std::vector<std::string> settings;
  const auto compare = [&settings](const char* key, int64_t a, int64_t b) {
    if (a != b) settings.push_back(fmt::format("{}: {}", key, a));
  };
  compare("zero", to.zero, from.zero);
  compare("tensor_parallel", to.tensor_parallel, from.tensor_parallel);
  compare("pipeline_parallel", to.pipeline_parallel, from.pipeline_parallel);
  compare("batch_size", fastest.training.batch_size, now.training.batch_size);
  return fmt::format("{}", fmt::join(settings, ", "));
}

// What as many processes would compute the same update faster with; empty where nothing is, or no arrangement fits.
std::string find_faster(const UpdateFacts& facts, const Computing& computing, const plan::Network& network) {
  constexpr double kWorthSaying = 0.95;
  plan::Scenario scenario{.config = facts.config,
                          .device = facts.device,
                          .precision = facts.precision,
                          .attention = facts.attention,
                          .memory = facts.memory,
                          .network = network,
                          .compute = computing.parts,
                          .keeps_batch = true};
  scenario.config.training = facts.undivided;
  const auto fastest = plan::fastest_mesh(scenario, facts.config.distributed.processes);
  if (!fastest) return "";
  const plan::MeshPlan now = plan::plan_mesh(scenario, facts.config);
  const std::string settings = settings_that_differ(fastest->config, facts.config);
  const double share = fastest->time.seconds() / now.time.seconds();
  if (settings.empty() || (now.fits && share > kWorthSaying)) return "";
  return fmt::format("{} {}", settings,
                     now.fits ? fmt::format("would take {:.0f} % of the time", 100 * share) : "would fit");
}

void add_processes(const UpdateFacts& facts, const Computing& computing, const plan::Network& network,
                   plan::ProcessesPlan& several, plan::StepTime& step) {
  const plan::MeshTime time = plan::schedule_update(facts.config, {facts.precision.end_to_end, facts.form.is_recorded},
                                                    computing.parts(facts.config, facts.form), network);
  several.one = computing.one;
  several.computing = time.computing;
  several.sending = time.sending;
  several.computing_source =
      several.stages > 1
          ? fmt::format("{} as a whole; this is the slowest stage's part, and its waiting", computing.source)
      : several.model_parts == 1 ? computing.source
                                 : fmt::format("{}, and divided by {}", computing.source, several.model_parts);
  several.sending_source = network.source;
  several.faster = find_faster(facts, computing, network);
  step.seconds = several.seconds();
  step.source += fmt::format(", with {} of sending between {} processes", format_short_duration(several.sending),
                             several.processes);
}

}  // namespace

std::optional<UpdateTime> time_update(const UpdateFacts& facts) {
  const int64_t processes = facts.config.distributed.processes;
  double load = 0;
  if (getloadavg(&load, 1) != 1) load = 0;
  Config part = facts.config;
  plan::keep_busiest_part(part, part.distributed.data_processes());
  const auto trial = try_update(facts, part);
  if (!trial) return std::nullopt;
  return UpdateTime{plan::step_time(*trial, facts.config),
                    check_speed(part, facts.device, facts.precision,
                                {.step_seconds = trial->step_seconds,
                                 .product_speed = facts.product_speed,
                                 .peak = facts.device.peak_flops(facts.precision.dtype),
                                 .attention = facts.attention,
                                 .threads = at::get_num_threads(),
                                 .is_told_threads = facts.config.threads > 0,
                                 .cores = std::max<int64_t>(1, facts.cores / processes),
                                 .load = load / static_cast<double>(processes)})};
}

void compare_with_one(const UpdateFacts& facts, plan::ProcessesPlan& several, plan::StepTime& step) {
  const bool is_cpu = facts.device.device.is_cpu();
  const plan::Network network = is_cpu ? plan::measure_cpus(several.processes, facts.config.distributed.reduce_dtype)
                                       : plan::join_cards(facts.device, several.processes);
  Config undivided = facts.config;
  undivided.training = facts.undivided;
  device::use_cpu_threads(undivided.threads);
  const auto one = try_update(facts, undivided);
  device::use_cpu_threads(undivided.threads, several.processes);
  const double together = plan::seconds_together(1, several.processes, several.threads, facts.cores),
               sequences = static_cast<double>(several.most_micro_batches() * facts.config.training.batch_size),
               of_sequence = together * (step.seconds - step.update) / sequences, of_update = together * step.update;
  const auto parts = [of_sequence, of_update](const Config& config, const plan::ActivationForm& form) {
    const auto of_model = static_cast<double>(form.model_parts);
    return plan::StepParts{of_sequence * static_cast<double>(config.training.batch_size) / of_model,
                           of_update * form.state_share / of_model};
  };
  add_processes(facts,
                {.one = one ? one->step_seconds : 0,
                 .parts = parts,
                 .source = is_cpu ? "tried without the others beside it" : "tried on one GPU"},
                network, several, step);
}

UpdateTime estimate_update(const UpdateFacts& facts, const device::Card& card, plan::ProcessesPlan& several) {
  const ModelConfig& model = facts.config.model;
  const Dtype dtype = facts.precision.dtype;
  UpdateConfig part = facts.config;
  plan::keep_busiest_part(part, part.distributed.data_processes());
  const plan::StepEstimate of_part = plan::estimate_step(model, part.training, facts.form, card, dtype);
  plan::StepTime step{of_part.total(), plan::tokens_per_step(facts.config), describe(of_part)};
  if (several.processes > 1) {
    const Computing computing{.one = plan::estimate_step(model, facts.undivided, facts.form, card, dtype).total(),
                              .parts =
                                  [&card, dtype](const Config& config, const plan::ActivationForm& form) {
                                    UpdateConfig busiest = config;
                                    plan::keep_busiest_part(busiest, busiest.distributed.data_processes());
                                    return plan::estimate_parts(config.model, busiest.training, form, card, dtype);
                                  },
                              .source = "estimated"};
    add_processes(facts, computing, plan::join_cards(facts.device, several.processes), several, step);
  }
  return {step};
}

}  // namespace gpt::diagnose
