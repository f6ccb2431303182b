// learning_rate: auto and gpt-train --find-lr: the trials of rate_search.h, on the data, the device and the processes of a run. Each begins as
// the run does, from its weights and its first batches, and leaves nothing behind, so that the run begins as if it had not been made.
#pragma once

#include <optional>

#include "gpt/run/beginning.h"
#include "gpt/run/rate_search.h"
#include "gpt/run/setup.h"

namespace gpt::run {

// How many updates all trials together may take: as many as fit into a minute, at a speed that depends on the model and the machine alone, so
// that the same command finds the same rate.
int64_t search_updates(const Setup& setup, int64_t run_steps);

// How many updates the run will have, where one takes so many seconds and so many are left of max_time. Without
// max_time, and where the time of an update is 0, which means not known: those that its configuration says, or stands
// for.
int64_t expected_updates(const Setup& setup, double update_seconds, double seconds_left);

// All processes of the run call it and get the same. Ends after three minutes with what it has, or after a fifth of
// max_time, from whose rest the length of the run follows, by how fast the trials were; nothing where no two rates
// could be compared by then. Throws gpt::Error(interrupted) after a signal.
std::optional<FoundRate> find_rate(const Setup& setup, const Beginning& begins);

}  // namespace gpt::run
