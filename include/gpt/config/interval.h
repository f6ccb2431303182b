// How often something happens, and how long.
#pragma once

#include <cstdint>

namespace gpt {

// "500 steps", "2 epochs", "10 minutes", "10 %" of the run, or a bare number, which counts epochs when the run's length is given in
// epochs, and steps otherwise. 0 = never.
struct Interval {
  enum class Unit { run, steps, epochs, seconds, percent };  // run: as the run is counted
  int64_t count = 0;
  Unit unit = Unit::run;
  bool operator==(const Interval&) const = default;
};

// "90 seconds", "10 minutes", "1.5 hours", "2 days"; "none" is 0.
struct Duration {
  double seconds = 0;
  bool operator==(const Duration&) const = default;
};

}  // namespace gpt
