#include "gpt/config/batch.h"

#include <algorithm>

namespace gpt::config {

void derive_accumulation(TrainingConfig& training, const Origins& origins) {
  if (!training.total_batch_size || training.batch_size == 0 || origins.count("training.gradient_accumulation_steps"))
    return;
  if (*training.total_batch_size % training.batch_size == 0)
    training.gradient_accumulation_steps = *training.total_batch_size / training.batch_size;
}

void set_batch_size(TrainingConfig& training, int64_t batch_size) {
  training.batch_size = batch_size;
  derive_accumulation(training, {});
}

int64_t largest_divisor(int64_t total, int64_t limit) {
  int64_t divisor = std::min(total, limit);
  while (total % divisor != 0) --divisor;
  return divisor;
}

}  // namespace gpt::config
