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

// All processes of the run call it and get the same. Ends after three minutes with what it has; nothing where no two rates could be compared
// by then. Throws gpt::Error(interrupted) after a signal.
std::optional<FoundRate> find_rate(const Setup& setup, const Beginning& begins);

}  // namespace gpt::run
