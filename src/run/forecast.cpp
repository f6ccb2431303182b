#include "gpt/run/forecast.h"

namespace gpt::run {
namespace {

// How often something happens after `done` updates up to `total`, when it is due every `every` of them.
double times_left(int64_t every, int64_t done, int64_t total) {
  return every == 0 ? 0 : static_cast<double>(total / every - done / every);
}

}  // namespace

void Forecast::took(Activity activity, double seconds) {
  seconds_[activity] += seconds;
  ++count_[activity];
}

double Forecast::evaluation_seconds() const {
  const bool is_known = count_[kEvaluation] > 0;
  return plan_.eval_every == 0 ? 0 : is_known ? mean(kEvaluation) : step_seconds() * evaluation_steps_;
}

double Forecast::closing_seconds() const { return evaluation_seconds() + mean(kCheckpoint); }

double Forecast::other_seconds(int64_t done) const {
  const int64_t total = plan_.total_steps;
  // The last step is evaluated and saved, whether it is due or not.
  double evaluations = 0;
  if (plan_.eval_every > 0 && evaluation_steps_ > 0 && done < total) {
    evaluations = times_left(plan_.eval_every, done, total) + (total % plan_.eval_every != 0);
  }
  double checkpoints = times_left(plan_.checkpoint_every, done, total) + 1;
  if (plan_.checkpoint_seconds > 0)
    checkpoints = step_seconds() * static_cast<double>(total - done) / plan_.checkpoint_seconds + 1;
  return evaluations * evaluation_seconds() + times_left(plan_.sample_every, done, total) * mean(kSample) +
         checkpoints * mean(kCheckpoint);
}

double Forecast::remaining_seconds(int64_t done) const {
  if (step_seconds() == 0) return 0;
  return step_seconds() * static_cast<double>(plan_.total_steps - done) + other_seconds(done);
}

}  // namespace gpt::run
