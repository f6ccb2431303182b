// An optimizer's state that processes have divided among them, in one piece again.
#pragma once

#include "gpt/distributed/communicator.h"
#include "gpt/optim/optimizer.h"
#include "gpt/parameters/parameters.h"

namespace gpt::run {

// All processes call it, each with its spans. At the first one: the state of all parameters, in the host's memory. At the others, which
// only send theirs: nothing.
OptimizerState gathered_state(const Optimizer& optimizer, const Parameters& parameters, const OptimizerConfig& config,
                              distributed::Communicator& ranks);

}  // namespace gpt::run
