#include "gpt/bench/scaling.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/processors.h"
#include "gpt/device/cards.h"
#include "gpt/device/cpu_threads.h"
#include "gpt/model/compile.h"
#include "gpt/ops/probe.h"
#include "gpt/plan/card_estimate.h"
#include "gpt/plan/processes.h"
#include "gpt/plan/resolve.h"
#include "gpt/plan/trial.h"
#include "gpt/prepare/load_corpus.h"

namespace gpt::bench {
namespace {

constexpr double kGigabit = 1e9, kMicrosecond = 1e-6;
constexpr int64_t kMostDevices = 1'000'000;

[[noreturn]] void refuse_scaling(const std::string& why) { throw Error(ExitCode::config, "gpt-bench scaling: " + why); }

int64_t devices_per_machine(const ScalingOptions& options, const device::DeviceInfo& device) {
  constexpr int64_t kGpus = 8;
  return options.devices_per_machine.value_or(device.device.is_cuda() ? kGpus : 1);
}

// One adapter for each GPU, as in a DGX H100, or one for a machine without GPUs.
plan::Link link_of_machines(const ScalingOptions& options, const device::DeviceInfo& device) {
  constexpr double kOfGpu = 400, kOfCpu = 10;
  const double of_machine = options.link.value_or(
      device.device.is_cuda() ? kOfGpu * static_cast<double>(devices_per_machine(options, device)) : kOfCpu);
  return plan::link_between(options.latency * kMicrosecond, of_machine * kGigabit);
}

// The model on a card that is not here, for which neither data nor steps are needed.
void imagine_card(Scaling& scaling, const ScalingOptions& options) {
  plan::Scenario& scenario = scaling.scenario;
  Config& config = scenario.config;
  const device::Card& card = device::require_card("--gpu", options.gpu);
  if (!config.model.vocab_size)
    config.model.vocab_size = prepare::load_corpus(config.data, config.sequence_length()).vocab_size;
  scenario.device = card.describe();
  scenario.precision = device::resolve_precision(config.training.precision, scenario.device);
  scenario.attention = plan::expected_attention(config.model, config.training.execution, scenario.device,
                                                scenario.precision.compute_type());
  scenario.memory = plan::card_memory(scenario.device);
  scenario.memory.available *= config.training.allocator.memory_fraction;
  scenario.compute = [card, dtype = scenario.precision.dtype](const Config& asked, const plan::ActivationForm& form) {
    return plan::estimate_parts(asked.model, asked.training, form, card, dtype);
  };
  scaling.computing = "estimated from the data sheet and the shares of it that an H100 and an H200 reached";
}

// Times of a sequence and of an update, by the whole model on this device.
plan::StepParts time_parts(const run::Setup& setup, const plan::Scenario& scenario) {
  constexpr double kTrialSeconds = 5;
  run::Setup asked = setup;
  asked.config.training.gradient_accumulation_steps = 2;  // so that the update's time is known alone
  const plan::ActivationForm form =
      plan::activation_form(asked.config.model, asked.config.training, {}, setup.device, setup.precision);
  const auto largest =
      plan::largest_batch_size(asked.config.model, asked.config.training, form, scenario.memory.comfortable());
  const double speed = ops::measure_product_speed(setup.device.device, setup.precision.compute_type());
  const auto trial = largest ? plan::try_steps(asked, speed, *largest, kTrialSeconds) : std::nullopt;
  if (!trial)
    refuse_scaling(
        "a step of one sequence takes too long here, or does not fit into memory; name its time with "
        "--seconds-per-step, or a card with --gpu");
  const auto sequences = static_cast<double>(2 * asked.config.training.batch_size);
  return {(trial->step_seconds - trial->update_seconds) / sequences, trial->update_seconds};
}

void measure_here(Scaling& scaling, const ScalingOptions& options) {
  plan::Scenario& scenario = scaling.scenario;
  const run::Setup setup = plan::resolve(scenario.config);
  // What else was resolved, such as the type of gradients, depends on the batch of all devices.
  scenario.config.model.vocab_size = setup.config.model.vocab_size;
  scenario.config.training.precision.dtype = setup.precision.dtype;
  scenario.device = setup.device, scenario.precision = setup.precision;
  scenario.attention = model::attention_path(scenario.config.model, scenario.config.training.execution,
                                             setup.device.device, setup.precision.compute_type(), /*training=*/true);
  const at::Device device = setup.device.device;
  const int64_t of_machine = devices_per_machine(options, setup.device);
  scenario.memory = plan::of_each(plan::memory_budget(device, scenario.config.training.allocator.memory_fraction),
                                  device, of_machine);
  if (device.is_cpu()) device::use_cpu_threads(scenario.config.threads, of_machine);
  const double sequences =
      static_cast<double>(setup.config.training.batch_size * setup.config.training.gradient_accumulation_steps);
  const plan::StepParts parts = options.seconds_per_step ? plan::StepParts{*options.seconds_per_step / sequences, 0}
                                                         : time_parts(setup, scenario);
  const double slower =
      plan::seconds_together(1, of_machine, device.is_cpu() ? at::get_num_threads() : 0, usable_cores());
  scenario.compute = [parts, slower](const Config& config, const plan::ActivationForm& form) {
    const double share = slower / static_cast<double>(form.model_parts);
    return plan::StepParts{share * parts.micro_batch * static_cast<double>(config.training.batch_size),
                           share * parts.update * form.state_share};
  };
  scaling.computing = options.seconds_per_step ? "as given" : "tried here for some seconds";
}

plan::Network find_network(const plan::Scenario& scenario, const ScalingOptions& options) {
  const int64_t of_machine = devices_per_machine(options, scenario.device);
  plan::Network network = scenario.device.device.is_cuda()
                              ? plan::join_cards(scenario.device, of_machine)
                              : plan::measure_cpus(of_machine, scenario.config.distributed.reduce_dtype);
  network.between = link_of_machines(options, scenario.device);
  return network;
}

std::string describe_network(const plan::Network& network) {
  const bool is_cpu = network.cores.latency > 0;
  const plan::Link &near = is_cpu ? network.cores : network.within, &far = network.between;
  const auto us = [](double seconds) { return fmt::format("{:.3g} us", seconds / kMicrosecond); };
  const std::string machine = plural(network.of_machine, "device");
  return fmt::format(
      "{} {}/s, and a message {} ({}). Between machines of {}: {}/s for all of one together, and {} for a message.",
      is_cpu ? "Sending takes the cores of a process, which can send" : "Within a machine each device sends",
      format_bytes(near.bytes_per_second), "takes " + us(near.latency), network.source, machine,
      format_bytes(far.bytes_per_second), us(far.latency));
}

std::string describe_batch(const plan::Scenario& scenario) {
  return scenario.keeps_batch
             ? fmt::format("An update has {} with any number of devices (strong scaling).",
                           plural(scenario.sequences(), "sequence"))
             : fmt::format(
                   "Each device adds {} to an update (weak scaling), so that more devices learn from larger "
                   "updates, not from more of them.",
                   plural(scenario.sequences(), "sequence"));
}

Cells cells_of(const Scaling& scaling, const Scaling::Row& row) {
  if (!row.plan)
    return {with_commas(row.devices),
            "-",
            "-",
            "-",
            "-",
            "-",
            "-",
            "-",
            "-",
            "none fits into memory, or too few sequences"};
  const plan::MeshPlan& plan = *row.plan;
  const DistributedConfig& distributed = plan.config.distributed;
  const TrainingConfig& training = plan.config.training;
  return {with_commas(row.devices),
          fmt::format("{} x {} x {}", distributed.data_processes(), distributed.tensor_parallel,
                      distributed.pipeline_parallel),
          fmt::format("{}", distributed.zero),
          fmt::format("{} x {}", training.batch_size, training.gradient_accumulation_steps),
          format_bytes(plan.memory),
          fmt::format("{:.1f}", 1000 * plan.time.seconds()),
          as_share(plan.time.sending / plan.time.seconds()),
          format_count(plan.tokens_per_second()),
          as_share(scaling.efficiency(plan)),
          plan.fits ? plan.limit : "does not fit; computed as if it did"};
}

nlohmann::ordered_json json_of(const Scaling& scaling, const Scaling::Row& row) {
  nlohmann::ordered_json json{{"devices", row.devices}, {"fits", row.plan && row.plan->fits}};
  if (!row.plan) return json;
  const plan::MeshPlan& plan = *row.plan;
  json.update({{"data_parallel", plan.config.distributed.data_processes()},
               {"tensor_parallel", plan.config.distributed.tensor_parallel},
               {"pipeline_parallel", plan.config.distributed.pipeline_parallel},
               {"zero", plan.config.distributed.zero},
               {"batch_size", plan.config.training.batch_size},
               {"micro_batches", plan.config.training.gradient_accumulation_steps},
               {"tokens", plan.tokens()},
               {"memory_bytes", plan.memory},
               {"computing_seconds", plan.time.computing},
               {"sending_seconds", plan.time.sending},
               {"step_seconds", plan.time.seconds()},
               {"tokens_per_second", plan.tokens_per_second()},
               {"efficiency", scaling.efficiency(plan)},
               {"limit", plan.limit}});
  return json;
}

}  // namespace

std::vector<config::Option> options(ScalingOptions& scaling) {
  constexpr double kMost = 1e9;
  return {{.name = "gpu",
           .target = &scaling.gpu,
           .help = "a card that is not here, such as 'H100 SXM' or 'A100 80GB'; otherwise steps are timed on this "
                   "machine's device"},
          {.name = "devices", .target = &scaling.devices, .help = "how many devices, with commas between the numbers"},
          {.name = "devices-per-machine",
           .target = &scaling.devices_per_machine,
           .help = "devices of each machine; auto = 8 GPUs, or one process on a CPU",
           .min = 1,
           .max = static_cast<double>(kMostDevices)},
          {.name = "link",
           .target = &scaling.link,
           .help =
               "what a machine sends to others, in Gbit/s, shared by its devices; without it, 400 for each GPU, or 10",
           .min = 1e-6,
           .max = kMost},
          {.name = "latency",
           .target = &scaling.latency,
           .help = "of a message between machines, in microseconds",
           .min = 0,
           .max = kMost},
          {.name = "seconds-per-step",
           .target = &scaling.seconds_per_step,
           .help = "what one device computes in a step, where you know it, instead of timing steps here",
           .min = 1e-9,
           .max = kMost},
          config::switch_row("fixed-batch", scaling.fixed_batch,
                             "an update keeps its sequences, however many devices there are")};
}

void complete_scaling(ScalingOptions& scaling, const config::CommandLine& command) {
  const DistributedConfig& distributed = command.config.distributed;
  if (command.has("distributed.zero")) scaling.zero = distributed.zero;
  if (command.has("distributed.tensor_parallel")) scaling.tensor_parallel = distributed.tensor_parallel;
  if (command.has("distributed.pipeline_parallel")) scaling.pipeline_parallel = distributed.pipeline_parallel;
  if (!scaling.gpu.empty()) {
    (void)device::require_card("--gpu", scaling.gpu);
    if (scaling.seconds_per_step)
      refuse_scaling("--gpu estimates a step, and --seconds-per-step names its time: give one of them");
    if (command.has_flag("device"))
      refuse_scaling("--gpu asks about another machine, --device about this one: give one of them");
  }
  if (command.has_flag("distributed.processes"))
    refuse_scaling("--devices says how many there are: leave out distributed.processes");
  (void)numbers_of_devices(scaling);
}

std::vector<int64_t> numbers_of_devices(const ScalingOptions& scaling) {
  std::vector<int64_t> numbers;
  std::string_view rest = scaling.devices;
  while (true) {
    const std::string_view word = rest.substr(0, rest.find(','));
    int64_t number = 0;
    const auto [end, fault] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (fault != std::errc() || end != word.data() + word.size() || number < 1 || number > kMostDevices)
      refuse_scaling(
          fmt::format("--devices must be whole numbers from 1 to {} with commas between them, such as 1,8,64, got {}",
                      with_commas(kMostDevices), config::in_quotes(scaling.devices)));
    numbers.push_back(number);
    if (word.size() == rest.size()) return numbers;
    rest.remove_prefix(word.size() + 1);
  }
}

double Scaling::efficiency(const plan::MeshPlan& plan) const {
  return plan.tokens_per_second() / (static_cast<double>(plan.devices()) * one.tokens_per_second());
}

Scaling simulate_scaling(const Wanted& wanted, const ScalingOptions& options) {
  Scaling scaling{.scenario = {}, .computing = {}, .one = {}, .rows = {}, .is_elsewhere = !options.gpu.empty()};
  plan::Scenario& scenario = scaling.scenario;
  scenario.config = wanted.config;
  scenario.keeps_batch = options.fixed_batch;
  scenario.zero = options.zero, scenario.tensor_parallel = options.tensor_parallel;
  scenario.pipeline_parallel = options.pipeline_parallel;
  scaling.is_elsewhere ? imagine_card(scaling, options) : measure_here(scaling, options);
  scenario.network = find_network(scenario, options);
  plan::Scenario alone = scenario;
  alone.zero = 0, alone.tensor_parallel = 1, alone.pipeline_parallel = 1;
  const std::optional<plan::MeshPlan> one = plan::fastest_mesh(alone, 1);
  if (!one) refuse_scaling("gpt-train would refuse this configuration on one device");
  scaling.one = *one;
  for (const int64_t devices : numbers_of_devices(options))
    scaling.rows.push_back({devices, devices == 1 ? one : plan::fastest_mesh(scenario, devices)});
  return scaling;
}

Findings findings(const Scaling& scaling) {
  const plan::Scenario& scenario = scaling.scenario;
  Findings result{
      .text =
          {"Simulated, not measured: what one device computes, and a model of what devices send to each other. Of the "
           "arrangements that fit into memory each row has the fastest, in the largest micro-batches that fit.",
           fmt::format("A step of one device: {}, {}.", format_short_duration(scaling.one.time.seconds()),
                       scaling.computing),
           describe_network(scenario.network), describe_batch(scenario)},
      .json = {},
      .chart_title = "Tokens/s of each device in % of one alone, simulated",
      .legend = {"fits into its memory", "does not fit"},
      .threads = scaling.is_elsewhere ? 0 : at::get_num_threads(),
      .complete = true};
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  Table table{{{"devices", "data x tensor x stages", "zero", "batch x micro-batches", "memory", "ms/step", "sending",
                "tokens/s", "efficiency", "limited by"}}};
  for (const Scaling::Row& row : scaling.rows) {
    table.rows.push_back(cells_of(scaling, row));
    rows.push_back(json_of(scaling, row));
    if (!row.plan) continue;
    result.bars.push_back({plural(row.devices, "device"),
                           fmt::format("{}, {} tokens/s", as_share(scaling.efficiency(*row.plan)),
                                       format_count(row.plan->tokens_per_second())),
                           100 * scaling.efficiency(*row.plan), row.plan->fits});
  }
  result.text.push_back(std::move(table));
  const plan::Network& network = scenario.network;
  const nlohmann::ordered_json json{{"simulated", true},
                                    {"devices_per_machine", network.of_machine},
                                    {"link_bytes_per_second", network.between.bytes_per_second},
                                    {"link_latency_seconds", network.between.latency},
                                    {"keeps_batch", scenario.keeps_batch},
                                    {"rows", std::move(rows)}};
  result.json = json.dump();
  return result;
}

}  // namespace gpt::bench
