// How long a run takes and what it costs: arithmetic on the time of a step, wherever that comes from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpt/config/config.h"
#include "gpt/plan/check.h"
#include "gpt/plan/trial.h"
#include "gpt/run/plan.h"

namespace gpt::plan {

struct StepTime {
  double seconds = 0;  // the time of one update of the configuration, all its micro-steps included
  int64_t tokens = 0;  // tokens of that update; 0 = not known
  std::string source;  // where it comes from: "in a trial of 12 updates"
  double update = 0;   // of the seconds, those that do not grow with micro-steps; 0: not known
};
int64_t tokens_per_step(const UpdateConfig& config);
StepTime step_time(const Trial& trial, const UpdateConfig& config);

// What is left of a run after `steps_done`.
struct TimeLeft {
  int64_t steps_done = 0, steps = 0;
  double seconds = 0;  // with validation
};
TimeLeft time_left(const UpdateConfig& config, const run::Plan& plan, int64_t steps_done, double step_seconds,
                   int64_t validation_tokens);

// The time of the run; without a step's time, why there is none. More than a day is a warning.
Check check_time(const UpdateConfig& config, const run::Plan& plan, int64_t steps_done,
                 const std::optional<StepTime>& step, int64_t validation_tokens);

struct Pricing {
  double per_hour = 0;
  std::string noun = {};              // what is paid in: "units"; empty for a currency
  std::optional<double> budget = {};  // in the same unit
};
// Fails where the budget does not pay for what is left, saying how much would, and how many steps it does pay for.
Check check_cost(const Pricing& pricing, const TimeLeft& left);

}  // namespace gpt::plan
