// A steady clock that stands still while this process is stopped (Ctrl-Z, SIGSTOP) or waits because somebody said so: what a step takes is
// not how long somebody went away.
// The sleep of a machine counts in no steady clock of Linux.
//
// The thread that waits for signals looks several times a second. So it knows, when SIGCONT wakes the process up, since when it had been
// stopped. Without that thread, nothing counts as a pause.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>

namespace gpt {

// How much of a steady clock's time were pauses. Each function is told the clock's time, and may be called by any thread.
class Pauses {
 public:
  using Time = std::chrono::nanoseconds;
  static constexpr Time kBetweenLooks = std::chrono::milliseconds(200);

  void look(Time now);           // the process runs
  void woke(Time now);           // it was stopped until now, if a look is missing
  void begin(Time now);          // somebody has it wait from now on,
  void end(Time now);            // until now
  bool is_late(Time now) const;  // looks are missing, whatever has kept them
  bool are_watched() const;      // somebody has looked
  Time total() const;            // without one that goes on
  struct Known {
    Time total;
    std::optional<Time> since;  // when the one that goes on has begun
  };
  Known known() const;

 private:
  mutable std::mutex mutex_;
  std::optional<Time> looked_, since_;
  Time total_{0};
};

class RunningClock {
 public:
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<RunningClock>;
  static constexpr bool is_steady = true;

  // While it exists the clock stands still, for all threads. There is one at a time.
  class Pause {
   public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
  };

  // Waits for a moment where looks are missing: a pause that has just ended may not be known yet.
  static time_point now();

  static bool is_watched();  // without that, it is a steady clock
  static void look();        // for the thread that waits for signals
  static void woke();
};

template <class Clock, class Duration>
double seconds_since(std::chrono::time_point<Clock, Duration> begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// For how long this process has run, its loading of libraries included and its pauses not.
double seconds_since_start();

double seconds_since_1970();  // in UTC, as the calendar of this machine has it

}  // namespace gpt
