// The last line of a terminal while a run trains: how far it has got, its losses and the time that remains. A thread of
// its own redraws it every second, so that a step that takes minutes is seen to be alive. Nothing is drawn where standard
// error is not a terminal.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "gpt/core/running_clock.h"

namespace gpt::train {

// What the bar shows. Times in seconds; 0 = not known yet.
struct Progress {
  int64_t steps_done = 0, total_steps = 0;
  double step_seconds = 0;       // the time of one step
  double remaining_seconds = 0;  // from the end of steps_done, with evaluations, samples and checkpoints
  std::optional<double> loss = {}, val_loss = {}, tokens_per_second = {};
};

// `seconds` have passed since steps_done were done; `activity`: what is being done instead of training; empty = training. The
// line takes at most `columns`: the bar shrinks, and what matters least is left out. Steps done are always there.
std::string progress_line(const Progress& progress, double seconds, const std::string& activity, int columns);

class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar() { close(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(const Progress& progress);  // a step begins
  // What is being done instead of training: "validating 34%".
  void show_activity(const Progress& progress, const std::string& what);
  void close();  // nothing is shown any more

 private:
  using Clock = RunningClock;
  void redraw_every_second();
  void draw();  // `mutex_` is held

  std::mutex mutex_;
  std::condition_variable stopped_;
  bool is_stopped_ = false;
  Progress progress_;
  std::string activity_;
  Clock::time_point step_began_ = Clock::now(), drawn_{};
  std::thread thread_;
};

}  // namespace gpt::train
