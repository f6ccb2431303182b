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
  void expect(Activity activity, double seconds) { expected_[activity] = seconds; }  // once, until it has been measured

  void ends_after(int64_t total_steps) { plan_.total_steps = total_steps; }

  double step_seconds() const { return mean(kStep); }
  // The time from the end of `steps_done` updates to the end of the run; 0 = no step has been measured yet.
  double remaining_seconds(int64_t steps_done) const;
  // The part of that time that is not for updates, and the part that comes after the last of them.
  double other_seconds(int64_t steps_done) const;
  double closing_seconds() const;

 private:
  double mean(Activity activity) const {
    return count_[activity] == 0 ? expected_[activity] : seconds_[activity] / static_cast<double>(count_[activity]);
  }
  double evaluation_seconds() const;

  Plan plan_;
  double evaluation_steps_;
  double seconds_[4] = {}, expected_[4] = {};
  int64_t count_[4] = {};
};

}  // namespace gpt::run
