// From what the user asked for to what the run is, once: vocabulary, dtype and batch have been chosen in the result, with their reasons.
// The sizes of a model are chosen before, while the command line is read (run/automatic_sizes.h); whether its operators work, when the
// run is in memory (run/run.h).
#pragma once

#include "gpt/run/beginning.h"
#include "gpt/run/setup.h"

namespace gpt::plan {

// Sets the process's allocators and arithmetic. On a GPU steps are tried for batch_size: auto. `asked`: the precision of the command line.
// Throws gpt::Error(config) where data or device contradict the configuration.
run::Setup resolve(run::RunData data, at::Device device, const PrecisionConfig& asked);

// A run that is measured or tried: it has no folder, and no steps are tried for it.
run::Setup resolve(const Config& asked);

}  // namespace gpt::plan
