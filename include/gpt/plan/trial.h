// How fast a configuration really trains here: a few updates of the real model on the real data, timed. Their results are
// not kept. They draw from the process's random state, so no run may follow in the same process.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "gpt/run/setup.h"

namespace gpt::plan {

struct Trial {
  double step_seconds = 0;    // the time of one update of the configuration, all its micro-steps included
  double update_seconds = 0;  // of these, what one update takes that does not grow with its micro-steps; 0: not known
  int64_t updates = 0;        // updates that were timed
  // Sequences per micro-step of the trial; fewer than the configuration's where those would take long.
  int64_t batch_size = 0;
};

// Takes about `seconds`, or up to four times that where whole updates can be timed so, plus one warm-up update, or up to twenty times as long
// where one sequence takes longer, as a line of the log says; nothing where that is not enough. `product_speed`: FLOP/s, from which the size of
// the trial follows. The state of a trial of `largest_batch` sequences must fit into memory.
std::optional<Trial> try_steps(const run::Setup& setup, double product_speed, int64_t largest_batch, double seconds);

// The measurement of a trial alone, of `batch_size` sequences at a time.
//
//   update: makes one of so many micro-batches.
//   now: a clock, in seconds.
//   warm_up: updates of each number of micro-batches before those that are timed.
Trial time_updates(const TrainingConfig& training, int64_t batch_size, int64_t warm_up, double seconds,
                   const std::function<void(int64_t micro_batches)>& update, const std::function<double()>& now);

}  // namespace gpt::plan
