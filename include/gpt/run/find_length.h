// How long a run is where its configuration alone does not say that: with training.max_time, from the time of a few
// updates, or where it was told another length.
#pragma once

#include <cstdint>
#include <optional>

#include "gpt/run/beginning.h"
#include "gpt/run/plan.h"
#include "gpt/run/setup.h"

namespace gpt::run {

// What decides how many updates fit into a time.
struct TimedRun {
  int64_t batches_per_epoch = 0, validation_tokens = 0;
  double update_seconds = 0;
  uint64_t checkpoint_bytes = 0;
};

// As many updates as fit into `seconds` with the validations and checkpoints that the configuration asks for, and at most what else limits the
// length of the run.
int64_t steps_in_time(const UpdateConfig& config, const TimedRun& run, double seconds);

// The plan of a run that follows a course: of the one that it has at the checkpoint `start`; where that has none, or
// there is no checkpoint (null), with as many updates as max_time allows. Nothing where its configuration says how long
// it is, and where the time of an update is 0, which means not known.
std::optional<Plan> plan_along_course(const UpdateConfig& config, const TimedRun& run,
                                      const checkpoint::Checkpoint* start);

// Sets begins.total_steps, unless the run has no max_time or goes on with a length that it has: as the decisions to
// come say, or by the time of a few updates of a run that is made for that, whose results are not kept. Decisions to
// come about a length that the configuration does not ask for any more are left out. `is_replay`: the run repeats the
// decisions of another one, and does not keep to the clock if these have lengths. All processes of the run come here,
// and get the number of the first one. Throws gpt::Error: config where the time is over already, interrupted after a
// signal.
void find_length(Setup& setup, Beginning& begins, bool is_replay);

}  // namespace gpt::run
