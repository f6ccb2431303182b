// gpt-serve: a model, the batcher that computes its texts, and the server that clients reach.
#pragma once

#include "gpt/serve/options.h"

namespace gpt::serve {

// Serves until a signal asks to stop; returns the exit status. Throws gpt::Error.
int serve(const ServeOptions& options);

}  // namespace gpt::serve
