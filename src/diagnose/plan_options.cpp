#include "gpt/diagnose/plan_options.h"

#include <fmt/format.h>

#include "gpt/core/error.h"

namespace gpt {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(ExitCode::config, "gpt-diagnose: " + why); }

// The first option that was given and makes sense for a run only; empty without any.
std::string first_about_a_run(const PlanOptions& plan) {
  if (plan.price_per_hour) return "--price-per-hour";
  if (plan.units_per_hour) return "--units-per-hour";
  if (plan.budget) return "--budget";
  if (plan.seconds_per_step) return "--seconds-per-step";
  if (plan.steps_per_epoch) return "--steps-per-epoch";
  return "";
}

bool on_command_line(const config::CommandLine& command, const std::string& key) {
  const auto found = command.origins.find(key);
  return found != command.origins.end() && found->second.starts_with("--");
}

void require_time(const PlanOptions& plan) {
  if (plan.seconds_per_step) return;
  if (plan.steps_per_epoch)
    refuse("--steps-per-epoch is for data that are not here, so no step can be timed: add --seconds-per-step");
  if (plan.asks_for_cost() && plan.no_probe)
    refuse("a cost needs the time of a step: leave out --no-probe, or add --seconds-per-step");
}

}  // namespace

bool PlanOptions::is_arithmetic(const Config& config) const {
  return steps_per_epoch && seconds_per_step && !config.model.vocab_size;
}

std::vector<config::Option> options(PlanOptions& plan) {
  constexpr double kLeast = 1e-9, kMost = 1e12;
  return {
      config::switch_row("no-probe", plan.no_probe, "do not time training steps, which takes some seconds"),
      {.name = "checkpoint",
       .target = &plan.checkpoint,
       .help = "verify a checkpoint, or that of a run folder; with a run: the time and cost of what is left after it"},
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
      {.name = "price-per-hour",
       .target = &plan.price_per_hour,
       .help = "what an hour costs, a number in any currency: adds what the run costs",
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
  if (plan.price_per_hour && plan.units_per_hour)
    refuse("--price-per-hour and --units-per-hour are two ways to pay for an hour: give one of them");
  if (plan.budget && !plan.asks_for_cost()) refuse("--budget needs a rate: add --price-per-hour or --units-per-hour");
  if (plan.steps_per_epoch) {
    for (const char* key : {"data.text", "data.bin", "data.dataset"}) {
      if (on_command_line(command, key))
        refuse(fmt::format("--steps-per-epoch is for data that are not here: leave out it or --{}", key));
    }
  }
  require_time(plan);
}

}  // namespace gpt
