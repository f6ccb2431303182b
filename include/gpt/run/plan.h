// How long a run is and when things happen in it, in steps (one step = one optimizer update). gpt-diagnose prints it.
#pragma once

#include <cstdint>
#include <optional>

#include "gpt/config/training_config.h"

namespace gpt::run {

struct Plan {
  int64_t batches_per_epoch = 0;  // micro-batches
  int64_t steps_per_epoch = 0;    // the last step of an epoch takes the micro-batches that are left
  int64_t total_steps = 0;
  bool counted_in_epochs = false;
  int64_t eval_every = 0, checkpoint_every = 0, sample_every = 0;  // steps; 0 = never
  double checkpoint_seconds = 0;  // between checkpoints, where they are counted in time; 0 = they are not

  int64_t total_epochs() const { return (total_steps + steps_per_epoch - 1) / steps_per_epoch; }
  double epochs() const { return static_cast<double>(total_steps) / static_cast<double>(steps_per_epoch); }
  bool ends_epoch(int64_t steps_done) const { return steps_done % steps_per_epoch == 0; }
  // Micro-batches of update `step` (0-based).
  int64_t micro_batches(int64_t step) const;

 private:
  friend Plan plan_run(const TrainingConfig& config, int64_t batches_per_epoch, std::optional<int64_t> steps_in_time);
  int64_t accumulation_ = 1;
};

// The length of a run, which is counted in updates or in epochs. With max_time it is only the most that the run may have; where nothing else
// limits it, kDefaultMaxSteps stands for a length that is not known.
int64_t total_steps(const ScheduleConfig& config, int64_t steps_per_epoch);
int64_t most_steps(const ScheduleConfig& config,
                   int64_t steps_per_epoch);  // the same, without a length that stands for none

// `steps_in_time`: how long it is with max_time, once that is known.
Plan plan_run(const TrainingConfig& config, int64_t batches_per_epoch, std::optional<int64_t> steps_in_time = {});

// True after `steps_done` updates when something that happens every `every` steps is due.
inline bool due(int64_t every, int64_t steps_done) { return every > 0 && steps_done % every == 0; }

}  // namespace gpt::run
