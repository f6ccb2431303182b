// How fast a configuration really trains here: a few updates of the real model on the real data, timed. Their results are
// not kept. They draw from the process's random state, so no run may follow in the same process.
#pragma once

#include <cstdint>
#include <optional>

#include "gpt/config/config.h"
#include "gpt/data/corpus.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"

namespace gpt::plan {

struct Trial {
  double step_seconds = 0;  // of one update of the configuration, all its micro-steps included
  int64_t updates = 0;      // that were timed
  int64_t batch_size =
      0;  // sequences per micro-step of the trial; fewer than the configuration's where those would take long
};

// Takes about `seconds`, plus one warm-up update. `product_speed`: FLOP/s, from which the size of the trial follows.
// Nothing where even one sequence would take longer than that. `config.model.vocab_size` must be set, and the state of a
// trial of `largest_batch` sequences must fit into memory.
std::optional<Trial> try_steps(const Config& config, const Corpus& corpus, const DeviceInfo& device,
                               const Precision& precision, double product_speed, int64_t largest_batch, double seconds);

}  // namespace gpt::plan
