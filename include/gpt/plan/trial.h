// How fast a configuration really trains here: a few updates of the real model on the real data, timed. Their results are
// not kept. They draw from the process's random state, so no run may follow in the same process.
#pragma once

#include <cstdint>
#include <optional>

#include "gpt/run/setup.h"

namespace gpt::plan {

struct Trial {
  double step_seconds = 0;  // the time of one update of the configuration, all its micro-steps included
  int64_t updates = 0;      // updates that were timed
  int64_t batch_size =
      0;  // sequences per micro-step of the trial; fewer than the configuration's where those would take long
};

// Takes about `seconds`, plus one warm-up update. `product_speed`: FLOP/s, from which the size of the trial follows.
// Nothing where even one sequence would take longer than that. The state of a
// trial of `largest_batch` sequences must fit into memory.
std::optional<Trial> try_steps(const run::Setup& setup, double product_speed, int64_t largest_batch, double seconds);

}  // namespace gpt::plan
