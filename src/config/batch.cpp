#include "gpt/config/batch.h"

#include <algorithm>

namespace gpt::config {

void derive_accumulation(TrainingConfig& training, const Origins& origins) {
  if (!training.total_batch_size || training.batch_size == 0) return;
  const int64_t total = *training.total_batch_size;
  int64_t &batch_size = training.batch_size, &steps = training.gradient_accumulation_steps;
  const bool has_steps = origins.count("training.gradient_accumulation_steps") > 0;
  if (!has_steps && total % batch_size == 0) steps = total / batch_size;
  if (has_steps && !origins.count("training.batch_size") && total % steps == 0) batch_size = total / steps;
}

void set_batch_size(TrainingConfig& training, int64_t batch_size) {
  training.batch_size = batch_size;
  derive_accumulation(training, {});
  // How the run learns must not depend on how much memory is free.
  GradientDtype& gradient_dtype = training.precision.gradient_dtype;
  if (gradient_dtype == GradientDtype::automatic && *training.total_batch_size > 1)
    gradient_dtype = GradientDtype::float32;
}

int64_t largest_divisor(int64_t total, int64_t limit) {
  int64_t divisor = std::min(total, limit);
  while (total % divisor != 0) --divisor;
  return divisor;
}

void deal_out(TrainingConfig& training, int64_t parts) {
  int64_t &batch_size = training.batch_size, &steps = training.gradient_accumulation_steps;
  const int64_t total = batch_size * steps;
  if (steps % parts == 0) return;
  const auto largest = [&](const auto& suits) {
    int64_t size = batch_size;
    while (size > 0 && !(total % size == 0 && suits(total / size))) --size;
    return size;
  };
  int64_t size = largest([&](int64_t count) { return count % parts == 0; });
  if (size == 0) size = largest([&](int64_t count) { return count >= parts; });
  if (size == 0) return;
  batch_size = size;
  steps = total / size;
}

}  // namespace gpt::config
