// What distributed.pipeline_parallel cannot divide, or does not go together with.
#pragma once

#include <string>

#include "gpt/config/config.h"

namespace gpt::config {

// Why the blocks of this model cannot be divided among stages, or this run not so, with what to do; empty where they can.
std::string pipeline_parallel_obstacle(const Config& config);

}  // namespace gpt::config
