#include "gpt/bench/effort.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace gpt::bench {
namespace {

constexpr int64_t kLeastUpdates = 3, kMostUpdates = 200, kMostWarmUp = 5;

int64_t updates_in(const Pace& pace, double seconds) {
  return static_cast<int64_t>((seconds - pace.around_seconds) / pace.update_seconds);
}

// Updates of less than 50 ms are nearly free.
int64_t warm_up_of(const Pace& pace, int64_t updates) {
  constexpr double kShort = 0.05;
  return pace.update_seconds < kShort ? kMostWarmUp : std::clamp<int64_t>(updates / 6, 1, kMostWarmUp);
}

// Those of a second, or of the time that a shorter start takes: what a run costs is at most doubled, and a few
// milliseconds of work would say nothing.
int64_t least_updates(const Pace& pace) {
  const double seconds = std::min(1.0, pace.around_seconds);
  return std::clamp(static_cast<int64_t>(std::ceil(seconds / pace.update_seconds)), kLeastUpdates, kMostUpdates);
}

}  // namespace

double TimeLeft::share(int64_t count) const {
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
  return (seconds_ - passed.count()) / static_cast<double>(count);
}

std::optional<Pace> find_pace(const Config& config, const Measure& measure) {
  constexpr MeasurementLength kFirst{.warm_up = 1, .updates = 2};
  const auto begin = std::chrono::steady_clock::now();
  const auto first = measure(config, kFirst);
  if (!first) return std::nullopt;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const double update = first->step_ms / 1000, updates = static_cast<double>(kFirst.warm_up + kFirst.updates);
  return Pace{update, std::max(0.0, took.count() - updates * update)};
}

MeasurementLength length_for(const Pace& pace, double seconds) {
  const int64_t updates = updates_in(pace, seconds), warm_up = warm_up_of(pace, updates);
  return {.warm_up = warm_up, .updates = std::clamp(updates - warm_up, least_updates(pace), kMostUpdates)};
}

Effort effort_for(const Pace& pace, int64_t count, double seconds) {
  constexpr int64_t kMostRounds = 3;
  const int64_t least = std::max(2 * kLeastUpdates, warm_up_of(pace, 0) + least_updates(pace));
  for (int64_t rounds = kMostRounds;; --rounds) {
    const double of_run = seconds / static_cast<double>(2 * rounds * std::max<int64_t>(1, count));
    if (updates_in(pace, of_run) >= least || rounds == 1) return {length_for(pace, of_run), rounds};
  }
}

}  // namespace gpt::bench
