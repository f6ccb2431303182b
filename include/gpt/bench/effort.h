// How much can be measured in the time that there is.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "gpt/bench/apart.h"
#include "gpt/bench/measurement.h"
#include "gpt/config/config.h"

namespace gpt::bench {

// What is done, as a share, and what is measured now.
using Progress = std::function<void(double share, const std::string& what)>;

// Divides what is left of so many seconds evenly among what is still to be done.
class TimeLeft {
 public:
  explicit TimeLeft(double seconds) : seconds_(seconds) {}
  double share(int64_t count) const;

 private:
  double seconds_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

struct Pace {
  double update_seconds = 0;
  double around_seconds = 0;  // what a run takes beside its updates: start-up, above all
};

// Finds the pace by one short measurement; nothing when it was stopped.
std::optional<Pace> find_pace(const Config& config, const Measure& measure);

// A measurement that takes about `seconds`: 3 to 200 updates. Where starting the process takes as long, it takes longer: a run that
// has cost a second already is not to be judged by a few milliseconds.
MeasurementLength length_for(const Pace& pace, double seconds);

struct Effort {
  MeasurementLength length;
  int64_t rounds;
};
// So that `count` comparisons of two configurations, each `rounds` times, take about `seconds`.
Effort effort_for(const Pace& pace, int64_t count, double seconds);

}  // namespace gpt::bench
