#include "gpt/serve/queue_pace.h"

#include <algorithm>
#include <cmath>

namespace gpt::serve {
namespace {

double seconds_between(QueuePace::Clock::time_point begin, QueuePace::Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

void QueuePace::one_left(Clock::time_point now, int64_t still_waiting) {
  constexpr double kNewest = 0.3;  // its weight beside those before
  if (last_ && others_waited_) {
    const double seconds = seconds_between(*last_, now);
    mean_ = mean_ > 0 ? mean_ + kNewest * (seconds - mean_) : seconds;
  }
  last_ = now;
  others_waited_ = still_waiting > 0;
}

// The longer nobody has left, the longer it seems to take.
int64_t QueuePace::seconds_until_room(Clock::time_point now) const {
  const double since = last_ ? seconds_between(*last_, now) : 0;
  return static_cast<int64_t>(std::clamp(std::ceil(std::max(mean_, since)), 1.0, 60.0));
}

}  // namespace gpt::serve
