// A run that goes on with another length or learning rate than it had: where it goes on from, and how its learning rate changes there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpt/config/schedule_config.h"
#include "gpt/config/training_config.h"
#include "gpt/run/folder.h"

namespace gpt::run {

// Whether the configuration says the length that it said when the checkpoint was written: updates, epochs and time.
bool has_same_length(const checkpoint::Checkpoint& checkpoint, const ScheduleConfig& schedule);

// The course of a run that goes on from the checkpoint with this schedule: with max_time, a longer one where that is
// longer now, and one that ends earlier where max_steps or epochs do; without it, that of the length that the run was
// told, until the configuration says another one.
optim::Course course_with(const checkpoint::Checkpoint& checkpoint, const ScheduleConfig& schedule,
                          int64_t steps_per_epoch);

// Where the learning rate of `start` has begun to decay along lr_schedule: wsd, and with the configuration `now` the decay begins later: the
// checkpoint from before the decay, in the same folder, from which the run goes on without a jump of the rate. Otherwise nothing.
std::optional<std::string> checkpoint_before_decay(const StartingPoint& start, const ScheduleConfig& now,
                                                   int64_t steps_per_epoch);

// Where that is so of the last checkpoint of a folder, the other one takes its place; no file changes. Throws gpt::Error(checkpoint) where
// it cannot be read.
void move_before_decay(StartingPoint& start, const ScheduleConfig& now, int64_t steps_per_epoch);

// Where the learning rate or the weight decay of the next update is another one than it would have been without the changes to the
// configuration: a line that says so.
std::optional<std::string> describe_rate_change(const checkpoint::Checkpoint& checkpoint, const ScheduleConfig& now,
                                                int64_t steps_per_epoch);
std::optional<std::string> describe_decay_change(const checkpoint::Checkpoint& checkpoint, const TrainingConfig& now,
                                                 int64_t steps_per_epoch);

}  // namespace gpt::run
