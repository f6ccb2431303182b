// What the processes of a run send each other in an update, and the memory that it takes.
#pragma once

#include <cstdint>

#include "gpt/config/config.h"

namespace gpt::plan {

// Bytes that a run of `processes` takes in each beside its first lane of gradients: its other lanes, and what its sums take; and bytes that
// each sends in an update, of stages the one that sends most. `config.model.vocab_size` must be set; `end_to_end`: as in Precision.
double exchange_bytes(const UpdateConfig& config, bool end_to_end, int64_t processes);
double sent_bytes(const UpdateConfig& config, bool end_to_end, int64_t processes);

}  // namespace gpt::plan
