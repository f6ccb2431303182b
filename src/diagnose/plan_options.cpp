#include "gpt/diagnose/plan_options.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/device/cards.h"

namespace gpt::diagnose {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(ExitCode::config, "gpt-diagnose: " + why); }

// The first option that was given and makes sense for a run only; empty without any.
std::string first_about_a_run(const PlanOptions& plan) {
  if (plan.price_per_hour) return "--price-per-hour";
  if (plan.units_per_hour) return "--units-per-hour";
  if (plan.budget) return "--budget";
  if (plan.seconds_per_step) return "--seconds-per-step";
  if (plan.steps_per_epoch) return "--steps-per-epoch";
  if (!plan.gpu.empty()) return "--gpu";
  if (!plan.memory.empty()) return "--memory";
  return "";
}

void require_time(const PlanOptions& plan) {
  if (plan.seconds_per_step || !plan.gpu.empty()) return;
  if (plan.steps_per_epoch)
    refuse("--steps-per-epoch is for data that are not here, so no step can be timed: add --seconds-per-step or --gpu");
  if (plan.asks_for_cost() && plan.no_probe)
    refuse("a cost needs the time of a step: leave out --no-probe, or add --seconds-per-step");
}

}  // namespace

bool PlanOptions::is_arithmetic(const UpdateConfig& config) const {
  return steps_per_epoch && seconds_per_step && gpu.empty() && memory.empty() && !config.model.vocab_size;
}

std::optional<double> PlanOptions::memory_bytes() const {
  if (memory.empty()) return std::nullopt;
  double value = 0;
  const char *begin = memory.data(), *end = begin + memory.size();
  const auto [rest, fault] = std::from_chars(begin, end, value);
  std::string_view unit(rest, end);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  constexpr std::pair<std::string_view, double> kUnits[] = {{"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},
                                                            {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  for (const auto& [name, bytes] : kUnits) {
    if (fault == std::errc() && unit == name && value > 0) return value * bytes;
  }
  refuse(fmt::format("--memory must be a size with its unit, such as 16GB or 24GiB, got '{}'", memory));
}

std::vector<config::Option> options(PlanOptions& plan) {
  constexpr double kLeast = 1e-9, kMost = 1e12;
  return {
      config::switch_row("no-probe", plan.no_probe, "skip the timing of training steps, which takes some seconds"),
      {.name = "checkpoint",
       .target = &plan.checkpoint,
       .help = "verify a checkpoint, or that of a run folder; with a run: the time and cost of what is left after it",
       .is_path = true},
      {.name = "seconds-per-step",
       .target = &plan.seconds_per_step,
       .help = "the time of a step where you know it, instead of timing steps here",
       .min = kLeast,
       .max = kMost},
      {.name = "steps-per-epoch",
       .target = &plan.steps_per_epoch,
       .help = "the length of an epoch, for data that are not here; auto = from the data",
       .min = 1,
       .max = kMost},
      {.name = "gpu",
       .target = &plan.gpu,
       .help = "a card that is not here, such as 'RTX 4090' or 'A100 80GB': memory and time are estimated for it"},
      {.name = "memory",
       .target = &plan.memory,
       .help =
           "check whether the run would fit into this much memory, such as 16GB, of this device or of the one in --gpu"},
      {.name = "price-per-hour",
       .target = &plan.price_per_hour,
       .help = "the price of an hour, a number in any currency; adds what the run costs",
       .min = 0,
       .max = kMost},
      {.name = "units-per-hour",
       .target = &plan.units_per_hour,
       .help = "the same where hours are paid for in units, such as the compute units of a notebook service",
       .min = 0,
       .max = kMost},
      {.name = "budget",
       .target = &plan.budget,
       .help = "what there is to spend, in the same currency or units: tells whether it is enough",
       .min = 0,
       .max = kMost},
  };
}

void require_consistent(const PlanOptions& plan, const config::CommandLine& command, const std::string& only_shows) {
  if (const std::string flag = first_about_a_run(plan); !flag.empty()) {
    if (!only_shows.empty())
      refuse(fmt::format("{} shows something and checks no run: leave out {}", only_shows, flag));
    if (command.config_path.empty() && command.origins.empty())
      refuse(fmt::format("{} is about a run: name one with --config, --data or other keys", flag));
  }
  if (!plan.gpu.empty()) {
    (void)device::require_card("--gpu", plan.gpu);
    if (command.config.distributed.processes == 0)
      refuse("--gpu asks about a machine whose GPUs cannot be counted here: give distributed.processes a number");
    if (command.has_flag("device"))
      refuse("--gpu asks about another machine, --device about this one: give one of them");
  }
  (void)plan.memory_bytes();
  if (plan.price_per_hour && plan.units_per_hour)
    refuse("--price-per-hour and --units-per-hour are two ways to pay for an hour: give one of them");
  if (plan.budget && !plan.asks_for_cost()) refuse("--budget needs a rate: add --price-per-hour or --units-per-hour");
  if (plan.steps_per_epoch) {
    for (const char* key : {"data.text", "data.bin", "data.dataset"}) {
      if (command.has_flag(key))
        refuse(fmt::format("--steps-per-epoch is for data that are not here: leave out either it or --{}", key));
    }
  }
  require_time(plan);
}

}  // namespace gpt::diagnose
