// How fast requests leave a queue: a client that finds no room there is told when to come again.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace gpt::serve {

class QueuePace {
 public:
  using Clock = std::chrono::steady_clock;

  void one_left(Clock::time_point now, int64_t still_waiting);
  // A wait from 1 to 60 seconds: clients that are told more give up.
  int64_t seconds_until_room(Clock::time_point now) const;

 private:
  double mean_ = 0;  // seconds between two that leave while others wait; 0: not known
  std::optional<Clock::time_point> last_;
  bool others_waited_ = false;  // when the last one left
};

}  // namespace gpt::serve
