// Time of the training alone: evaluation, samples and checkpoints stop it, and so does whoever stops the process.
#pragma once

#include <chrono>

#include "gpt/core/running_clock.h"

namespace gpt::train {

class Stopwatch {
 public:
  void start() { started_ = Clock::now(); }
  void stop() { elapsed_ += Clock::now() - started_; }
  double seconds() const { return std::chrono::duration<double>(elapsed_).count(); }
  double running_seconds() const { return std::chrono::duration<double>(elapsed_ + (Clock::now() - started_)).count(); }

 private:
  using Clock = RunningClock;
  Clock::time_point started_ = Clock::now();
  Clock::duration elapsed_{0};
};

}  // namespace gpt::train
