// How often something happens.
#pragma once

#include <cstdint>

namespace gpt {

// "500 steps", "2 epochs", "10 minutes", or a bare number, which counts epochs when the run's length is given in epochs, and
// steps otherwise. 0 = never.
struct Interval {
  enum class Unit { run, steps, epochs, seconds };  // run: as the run is counted
  int64_t count = 0;
  Unit unit = Unit::run;
  bool operator==(const Interval&) const = default;
};

}  // namespace gpt
