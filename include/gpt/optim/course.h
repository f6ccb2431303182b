// Where a run of training.max_time, or one that was told to be longer or shorter, is on its schedule. How many updates fit into a time is found
// out before the first one, and corrected on the way, as the machine becomes faster or slower. The schedule is laid out for the first number,
// and a correction changes only how far an update goes along it: the learning rate never jumps, and it is at its end when the run is.
#pragma once

#include <cstdint>

namespace gpt::optim {

// A run that keeps the length in updates that it began with is at its step: it has no course.
struct Course {
  // Updates that the schedule is laid out for; 0: the length is that of the configuration, or not known yet.
  int64_t planned = 0;
  int64_t total = 0;    // updates at which the run ends, as was decided last
  int64_t since = 0;    // the step of that decision,
  double position = 0;  // and where the run was on the schedule then, from 0 to planned

  // The place on the schedule after `step` updates, of which there have been `since` at least.
  double position_at(int64_t step) const;
  // From this step on the run ends after `total` updates; the first time, the schedule is laid out for as many.
  void end_at(int64_t total, int64_t step);
  // The time of the run is another one from here on, so many times as long: the schedule is as much longer, and the run as far along it as
  // before.
  void stretch(double times, int64_t step);

  bool operator==(const Course&) const = default;
};

}  // namespace gpt::optim
