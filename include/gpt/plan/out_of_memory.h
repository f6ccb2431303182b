// What is said about a run that does not fit into memory, before it starts or when it could not get any: what holds it, and which
// settings would make the run fit.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/plan/check.h"
#include "gpt/plan/model_checks.h"
#include "gpt/plan/savers.h"
#include "gpt/run/out_of_memory.h"
#include "gpt/run/setup.h"

namespace gpt::plan {

// The lines below that of the error, from numbers alone. `memory`: what the run may use.
std::vector<std::string> explain_shortage(const run::Shortage& shortage, const PlacedRun& run,
                                          const MemoryBudget& memory);

// For a check that failed: puts two ways to make the run fit, where there are any, in place of what check_memory() advises.
void name_settings_that_fit(Check& memory, const PlacedRun& run, const MemoryBudget& budget);

// Logs `error`, for which process::is_out_of_memory() holds, with these lines, and returns the exit status. The run's tensors
// must be gone. `checkpoint`: the file that the run resumed from, if it did.
ExitCode explain_out_of_memory(const std::exception& error, const run::Setup& setup, const std::string& checkpoint);

}  // namespace gpt::plan
