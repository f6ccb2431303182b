// How much longer a run takes: the mean time of its steps, evaluations, samples and checkpoints so far, times those left.
#pragma once

#include <cstdint>

#include "gpt/run/plan.h"

namespace gpt::run {

class Forecast {
 public:
  // `evaluation_steps`: what one evaluation costs in steps, until one has been measured; 0 = there is nothing to evaluate.
  Forecast(const Plan& plan, double evaluation_steps) : plan_(plan), evaluation_steps_(evaluation_steps) {}

  enum Activity { kStep, kEvaluation, kSample, kCheckpoint };
  void took(Activity activity, double seconds);

  double step_seconds() const { return mean(kStep); }
  // The time from the end of `steps_done` updates to the end of the run; 0 = no step has been measured yet.
  double remaining_seconds(int64_t steps_done) const;

 private:
  double mean(Activity activity) const {
    return count_[activity] == 0 ? 0 : seconds_[activity] / static_cast<double>(count_[activity]);
  }

  Plan plan_;
  double evaluation_steps_;
  double seconds_[4] = {};
  int64_t count_[4] = {};
};

}  // namespace gpt::run
