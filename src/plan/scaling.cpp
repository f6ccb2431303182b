#include "gpt/plan/scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "gpt/config/batch.h"
#include "gpt/config/load.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/parallel/pipeline_schedule.h"
#include "gpt/plan/resolve.h"
#include "gpt/plan/sent_bytes.h"

namespace gpt::plan {
namespace {

// By how much what divides more must be faster: less than that a model cannot tell.
constexpr double kFaster = 1.05;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

Network on_machines(Network network, int64_t devices) {
  network.of_machine = std::min(network.of_machine, devices);
  return network;
}

ActivationForm form_of(const Scenario& scenario, const Config& config) {
  return activation_form(config.model, config.training, config.distributed, scenario.device, scenario.precision,
                         scenario.attention);
}

double seconds_of(const Scenario& scenario, const Config& config, const ActivationForm& form, const StepParts& parts,
                  const Network& network) {
  return schedule_update(config, {scenario.precision.end_to_end, form.is_recorded}, parts, network).seconds();
}

// What a step would gain most from being rid of, with the share of its time.
std::string find_limit(const Scenario& scenario, const MeshPlan& plan, const ActivationForm& form,
                       const StepParts& parts) {
  constexpr double kNoticeable = 0.02;
  const Network network = on_machines(scenario.network, plan.devices());
  Network without_latency = network, without_between = network, without_within = network, without_cores = network;
  for (Link* link : {&without_latency.within, &without_latency.between, &without_latency.cores}) link->latency = 0;
  without_between.between.bytes_per_second = without_within.within.bytes_per_second = kNoLimit;
  without_cores.cores = {};
  const auto seconds = [&](const Network& changed) { return seconds_of(scenario, plan.config, form, parts, changed); };
  const int64_t groups = plan.config.distributed.data_processes(),
                micro_batches = plan.config.training.gradient_accumulation_steps,
                most = (micro_batches + groups - 1) / groups;
  const double of_even = static_cast<double>(micro_batches) / static_cast<double>(groups),
               uneven = (static_cast<double>(most) - of_even) * parts.micro_batch,
               waiting = plan.time.computing * parallel::bubble(plan.config.distributed.pipeline_parallel, most);
  double least = plan.time.seconds() * (1 - kNoticeable);
  std::string limit = "computing";
  for (const auto& [name, without] : {std::pair{"bytes between machines", seconds(without_between)},
                                      {"bytes within a machine", seconds(without_within)},
                                      {"the latency of messages", seconds(without_latency)},
                                      {"sending, which takes the cores", seconds(without_cores)},
                                      {"micro-batches, of which some devices have fewer", plan.time.seconds() - uneven},
                                      {"stages, which wait for each other", plan.time.seconds() - waiting}}) {
    if (without >= least) continue;
    least = without;
    limit = fmt::format("{} ({:.0f} %)", name, 100 * (1 - without / plan.time.seconds()));
  }
  return limit;
}

// Divides the update as gpt-train does. False where gpt-train would refuse the configuration.
bool divide(const Scenario& scenario, Config& config) {
  if (config.distributed.divides_weights() && scenario.precision.autocast_type() != at::kFloat) return false;
  if (!config::is_valid(config)) return false;
  try {
    divide_update(config, config.distributed.processes);
    return true;
  } catch (const Error&) { return false; }
}

void set_memory(const Scenario& scenario, MeshPlan& plan) {
  const Config& config = plan.config;
  MemoryBudget memory = scenario.memory;
  memory.exchange = exchange_bytes(config, scenario.precision.end_to_end, plan.devices());
  const double tensors = estimate_memory(config.model, config.training, form_of(scenario, config)).total();
  plan.memory = memory.taken() + tensors;
  plan.fits = tensors <= memory.comfortable();
}

// The sequences of an update in the largest micro-batches that fit; on one device, where none do, in the largest that there are.
std::optional<MeshPlan> with_largest_batch(const Scenario& scenario, const Config& arranged, int64_t total) {
  const int64_t groups = arranged.distributed.data_processes(), asked = scenario.config.training.batch_size,
                of_group = (total + groups - 1) / groups;
  std::optional<MeshPlan> largest;
  for (int64_t limit = asked > 0 ? std::min(asked, of_group) : of_group; limit > 0;) {
    MeshPlan plan{.config = arranged, .time = {}, .limit = {}};
    TrainingConfig& training = plan.config.training;
    training.batch_size = config::largest_divisor(total, limit);
    training.gradient_accumulation_steps = total / training.batch_size;
    training.total_batch_size = total;
    if (!divide(scenario, plan.config)) return std::nullopt;
    set_memory(scenario, plan);
    if (plan.fits) return plan;
    limit = training.batch_size - 1;
    if (!largest) largest = std::move(plan);
  }
  return arranged.distributed.processes == 1 ? largest : std::nullopt;
}

std::vector<int64_t> choices(const std::optional<int64_t>& asked, std::vector<int64_t> all) {
  return asked ? std::vector{*asked} : std::move(all);
}

}  // namespace

int64_t Scenario::sequences() const {
  const TrainingConfig& training = config.training;
  return training.batch_size > 0 ? training.batch_size * training.gradient_accumulation_steps
                                 : training.total_batch_size.value_or(1);
}

int64_t MeshPlan::tokens() const {
  return config.training.batch_size * config.training.gradient_accumulation_steps * config.sequence_length();
}

MeshPlan plan_mesh(const Scenario& scenario, const Config& config) {
  MeshPlan plan{.config = config, .time = {}, .limit = {}};
  set_memory(scenario, plan);
  const ActivationForm form = form_of(scenario, config);
  const StepParts parts = scenario.compute(config, form);
  plan.time = schedule_update(config, {scenario.precision.end_to_end, form.is_recorded}, parts,
                              on_machines(scenario.network, plan.devices()));
  plan.limit = find_limit(scenario, plan, form, parts);
  return plan;
}

std::optional<MeshPlan> fastest_mesh(const Scenario& scenario, int64_t devices) {
  const int64_t total = scenario.sequences() * (scenario.keeps_batch ? 1 : devices);
  std::vector<int64_t> divisors;
  for (int64_t parts = 1; parts <= std::min(devices, scenario.network.of_machine); parts *= 2)
    if (devices % parts == 0) divisors.push_back(parts);
  std::vector<int64_t> stage_counts;
  for (int64_t stages = 1; stages <= std::min(devices, scenario.config.model.n_layer); stages *= 2)
    stage_counts.push_back(stages);
  std::optional<MeshPlan> fastest;
  const auto try_arrangement = [&](int64_t tensor, int64_t stages, int64_t zero) {
    Config config = scenario.config;
    config.distributed.processes = devices, config.distributed.tensor_parallel = tensor;
    config.distributed.pipeline_parallel = stages, config.distributed.zero = zero;
    const std::optional<MeshPlan> plan = with_largest_batch(scenario, config, total);
    if (!plan) return;
    MeshPlan timed = plan_mesh(scenario, plan->config);
    if (!fastest || timed.tokens_per_second() > kFaster * fastest->tokens_per_second()) fastest = std::move(timed);
  };
  for (const int64_t stages : choices(scenario.pipeline_parallel, stage_counts)) {
    for (const int64_t tensor : choices(scenario.tensor_parallel, divisors)) {
      const int64_t of_model = tensor * stages;
      if (devices % of_model != 0) continue;
      for (const int64_t zero :
           choices(scenario.zero, devices > of_model ? std::vector<int64_t>{0, 1, 2, 3} : std::vector<int64_t>{0}))
        try_arrangement(tensor, stages, zero);
    }
  }
  return fastest;
}

}  // namespace gpt::plan
