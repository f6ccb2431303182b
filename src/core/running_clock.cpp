#include "gpt/core/running_clock.h"

#include <algorithm>
#include <thread>

namespace gpt {
namespace {

Pauses& pauses() {
  static auto* const of_process = new Pauses;  // never destroyed: threads use it until the process has ended
  return *of_process;
}

Pauses::Time steady_time() { return std::chrono::steady_clock::now().time_since_epoch(); }

}  // namespace

void Pauses::look(Time now) {
  const std::lock_guard lock(mutex_);
  looked_ = now;
}

void Pauses::woke(Time now) {
  const std::lock_guard lock(mutex_);
  if (looked_) total_ += std::max(Time(0), now - *looked_ - kBetweenLooks);
  looked_ = now;
}

bool Pauses::is_late(Time now) const {
  const std::lock_guard lock(mutex_);
  return looked_ && now - *looked_ > 2 * kBetweenLooks;
}

bool Pauses::are_watched() const {
  const std::lock_guard lock(mutex_);
  return looked_.has_value();
}

Pauses::Time Pauses::total() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

RunningClock::time_point RunningClock::now() {
  constexpr int kMostWaits = 100;
  for (int i = 0; i < kMostWaits && pauses().is_late(steady_time()); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const Pauses::Time paused = pauses().total();  // before the time itself: a pause in between is known to the next call
  return time_point(steady_time() - paused);
}

bool RunningClock::is_watched() { return pauses().are_watched(); }

void RunningClock::look() { pauses().look(steady_time()); }

void RunningClock::woke() { pauses().woke(steady_time()); }

}  // namespace gpt
