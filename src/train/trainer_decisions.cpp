// What a run decides on its way, or has decided before: when it ends, where it has a time, and what its learning rate is multiplied by.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/running_clock.h"
#include "gpt/train/trainer.h"

namespace gpt::train {

void Trainer::take_decisions() {
  decide_length();
  for (const checkpoint::Decision& decision : decisions_.take_due()) {
    if (decision.what == run::kTotalSteps) {  // there are many, and each log line has the length
      follow_length();
      continue;
    }
    if (decision.what == run::kSteps) follow_length();
    const std::string what = fmt::format("{} from now on, as was decided before", run::describe(decision));
    log::info(fmt::format("step {}: {}", with_commas(state_.step), what));
    listeners_.event({state_.step, what, moment()});
  }
}

double Trainer::seconds_spent() const { return spent_before_ + seconds_since_start(); }

void Trainer::keep_to_time() {
  if (training().schedule.has_time()) state_.seconds_spent = seconds_spent();
  if (!time_ || decisions_.has_to_come(run::kTotalSteps)) return;  // the run repeats what it did before it was killed
  // After the last checkpoint the machine's speed is measured, and the process ends.
  constexpr double kEnding = 1;
  const run::TimeBudget::Rest rest{kEnding + forecast_.other_seconds(state_.step),
                                   kEnding + forecast_.closing_seconds()};
  const auto steps = time_->after_update(state_.step, state_.seconds_spent, plan_.total_steps, rest);
  if (steps) wanted_steps_ = std::min(*steps, run::most_steps(training().schedule, plan_.steps_per_epoch));
}

// All processes have the same number, and are at the same step.
void Trainer::decide_length() {
  const int64_t steps = std::exchange(agreed_steps_, 0);
  if (steps == 0 || steps == plan_.total_steps) return;
  checkpoints_.require_folder();
  if (decisions_.decide(run::kTotalSteps, static_cast<double>(std::max(steps, state_.step)))) follow_length();
}

void Trainer::follow_length() {
  run_.follow_course();
  forecast_.ends_after(plan_.total_steps);
  listeners_.length(plan_.total_steps, plan_.epochs());
}

}  // namespace gpt::train
