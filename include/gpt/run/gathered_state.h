// The state of a model that processes have divided among them, in one piece again.
#pragma once

#include "gpt/checkpoint/checkpoint.h"
#include "gpt/distributed/communicator.h"
#include "gpt/optim/optimizer.h"
#include "gpt/parameters/parameters.h"
#include "gpt/run/division.h"

namespace gpt::run {

struct GatheredState {
  NamedTensors model;  // whole tensors
  OptimizerState optimizer;
};

// With Division::divides_weights: the value of a row, of which each of the processes that have the same part of it has some, as they keep
// it. All of these call it. At the first one in the host's memory, at the others undefined.
at::Tensor undivided_value(const Parameters& parameters, size_t row, distributed::Communicator& ranks);

// All processes call it. At the first one of each stage: all of the stage's state, in the host's memory. At the others, which only send
// theirs: nothing but the count of updates. Moments of 8 bits of a parameter that is divided are rounded anew, because the blocks of a part
// are not those of the whole.
GatheredState gathered_state(const Optimizer& optimizer, const Parameters& parameters, const OptimizerConfig& config,
                             const Division& division);

// Into a checkpoint. Where there are stages, as parts, of which the first process of each has its own.
void capture_gathered(const GatheredState& own, const Parameters& parameters, const Config& config,
                      const Division& division, Checkpoint& checkpoint);

}  // namespace gpt::run
