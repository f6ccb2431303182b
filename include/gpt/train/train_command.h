// What gpt-train does with its command line.
#pragma once

#include "gpt/config/load.h"
#include "gpt/core/error.h"

namespace gpt {

struct TrainOptions {
  bool restart = false;    // an older run in output_dir is set aside
  bool eval_only = false;  // evaluate_run() in place of training
};

// Trains until the run is done or a signal stops it, and returns the exit status. Throws gpt::Error: config, data, checkpoint, numerics or
// disk. What ran out of memory is explained in the log.
ExitCode train(const config::CommandLine& command, const TrainOptions& options);

}  // namespace gpt
