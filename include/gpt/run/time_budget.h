// training.max_time: how many updates fit into what is left of it, by the speed of the last ones. The first process asks it after each update,
// and what it answers becomes a decision of the run (run/decisions.h).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace gpt::run {

class TimeBudget {
 public:
  // `spent`: of these seconds, so many in earlier starts and in this one until now.
  TimeBudget(double seconds, double spent) : seconds_(seconds), next_look_(spent), updated_(spent) {}

  // What a run takes besides its updates: all of it until its end, and of that what comes after the last update.
  struct Rest {
    double all = 0, closing = 0;
  };

  // An update begins, or something else has ended that is none.
  void begins(double spent) { updated_ = spent; }
  // Update `step` has ended when so many seconds were spent, and the run is to end after `total` of them. Returns after how many it should
  // end instead: `step` where there is no time for another one. Nothing: `total` is right, or as good as the clock can tell.
  std::optional<int64_t> after_update(int64_t step, double spent, int64_t total, const Rest& rest);

 private:
  double pace() const;  // seconds of an update

  double seconds_;
  double next_look_, updated_;  // when that is, and when the last update ended or the next one began
  std::deque<double> times_;    // of the last updates
  double time_of_all_ = 0;      // their sum
};

// How many updates of so many seconds each fit into `seconds`, of which `rest` are for something else: at least one.
int64_t updates_in(double seconds, double update_seconds, double rest);

}  // namespace gpt::run
