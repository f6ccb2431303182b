// gpt-train --eval-only: the validation loss of a run's checkpoint, and nothing else.
#pragma once

#include "gpt/config/load.h"
#include "gpt/core/error.h"

namespace gpt::train {

// Evaluates the checkpoint that the run would resume from, on the whole validation split unless training.eval_batches says
// otherwise, and prints the result on standard output, as a line or as an object of JSON. Writes nothing and takes no lock. Throws gpt::Error(checkpoint) where
// there is no checkpoint.
ExitCode evaluate_run(const config::CommandLine& command, bool json);

}  // namespace gpt::train
