// The sequences of an update: batch_size in each of gradient_accumulation_steps micro-steps. training.total_batch_size names
// their product, from which the number of micro-steps follows. A file, flags, a preset, a checkpoint and the choice of
// batch_size: auto all come through here.
#pragma once

#include <cstdint>

#include "gpt/config/origins.h"
#include "gpt/config/training_config.h"

namespace gpt::config {

// Sets gradient_accumulation_steps to total_batch_size / batch_size where both are known and divide, unless it was written out; then
// batch_size, unless that was too.
// validate() refuses what does not divide.
void derive_accumulation(TrainingConfig& training, const Origins& origins);

// batch_size: auto has become this divisor of total_batch_size, whatever number of micro-steps is there. gradient_dtype: auto is then
// float32 where the total could be divided.
void set_batch_size(TrainingConfig& training, int64_t batch_size);

// The update keeps its sequences and gets micro-batches that `parts` processes, or lanes of them, can divide among themselves: evenly where
// the sequences can be divided so, in micro-batches as large as possible, otherwise at least one for each. An update must have as many
// sequences.
void deal_out(TrainingConfig& training, int64_t parts);

// The largest divisor of `total` that is at most `limit`; both are at least 1.
int64_t largest_divisor(int64_t total, int64_t limit);

}  // namespace gpt::config
