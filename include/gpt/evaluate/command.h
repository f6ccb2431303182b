// gpt-eval: every input through the model, and what came of it on standard output.
#pragma once

#include "gpt/evaluate/options.h"

namespace gpt::evaluate {

// Returns the exit status, which is that of a signal where one has stopped it: then only --output has what was computed. Throws gpt::Error.
int evaluate_inputs(const EvalOptions& options);

}  // namespace gpt::evaluate
