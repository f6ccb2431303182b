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

double Forecast::remaining_seconds(int64_t done) const {
  const double step = mean(kStep);
  if (step == 0) return 0;
  const int64_t total = plan_.total_steps;
  const double training = step * static_cast<double>(total - done);
  // The last step is evaluated and saved, whether it is due or not.
  double evaluations = 0;
  if (plan_.eval_every > 0 && evaluation_steps_ > 0 && done < total) {
    evaluations = times_left(plan_.eval_every, done, total) + (total % plan_.eval_every != 0);
  }
  const double evaluation = count_[kEvaluation] > 0 ? mean(kEvaluation) : step * evaluation_steps_;
  double checkpoints = times_left(plan_.checkpoint_every, done, total) + 1;
  if (plan_.checkpoint_seconds > 0) checkpoints = training / plan_.checkpoint_seconds + 1;
  return training + evaluations * evaluation + times_left(plan_.sample_every, done, total) * mean(kSample) +
         checkpoints * mean(kCheckpoint);
}

}  // namespace gpt::run
