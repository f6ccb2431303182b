// What processes have divided among them, an optimizer's state and weights, in one piece again.
#pragma once

#include "gpt/distributed/communicator.h"
#include "gpt/optim/optimizer.h"
#include "gpt/parameters/parameters.h"

namespace gpt::run {

// All processes call them, each with its spans. At the first one: the state, or the values, of all parameters, in the host's memory. At the
// others, which only send theirs: nothing. Values that are not divided are Parameters::values() everywhere.
OptimizerState gathered_state(const Optimizer& optimizer, const Parameters& parameters, const OptimizerConfig& config,
                              distributed::Communicator& ranks);
NamedTensors gathered_values(const Parameters& parameters, distributed::Communicator& ranks);

}  // namespace gpt::run
