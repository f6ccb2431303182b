// gpt-serve: a model, the batcher that computes its texts, and the server that clients reach.
#pragma once

#include <string>

#include "gpt/serve/options.h"

namespace gpt::serve {

// What clients call the model: the folder of a run, or the file where it is not the run's last checkpoint.
std::string model_name(const std::string& checkpoint);

// Until a signal asks to stop; returns the exit status. Throws gpt::Error.
int serve(const ServeOptions& options);

}  // namespace gpt::serve
