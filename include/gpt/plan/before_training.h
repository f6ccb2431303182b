// What gpt-train looks at before its first step: those checks of gpt-diagnose that cost less than a second.
#pragma once

#include "gpt/run/run.h"

namespace gpt::plan {

// Warns if the run is unlikely to fit into memory and, for a new run, about anything doubtful in its splits, its batches, its
// length, its learning rate and the time it takes. `is_resumed`: the run resumes, and its checkpoint is in memory. Throws
// gpt::Error(memory) where memory cannot suffice, unless training.memory_check is off, and gpt::Error(config) where samples
// would begin with a text that the tokenizer cannot encode. Nothing of the run has been allocated yet, and its random state
// stays untouched.
void check_before_training(const run::Setup& setup, bool is_resumed);

// The same about the length of a new run with training.max_time, which is known only once a few updates have been timed.
void check_length_before_training(const run::Run& run);

}  // namespace gpt::plan
