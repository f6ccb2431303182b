// What distributed.tensor_parallel cannot divide, or does not go together with.
#pragma once

#include <string>

#include "gpt/config/config.h"

namespace gpt::config {

// Why the processes of a group cannot divide this model, or how this run cannot be divided, with what to do; empty where they can. The
// vocabulary counts once it is known.
std::string tensor_parallel_obstacle(const Config& config);

}  // namespace gpt::config
