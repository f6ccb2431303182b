// What the kernels of AdamW are given, on every device. Small: cmake/CpuKernels.cmake says why.
#pragma once

#include <cstdint>

namespace gpt::ops {

// R: the type of the rounded copies; M: of the moments, which uint8_t keeps as codes (moment_map.h).
template <class R, class M>
struct AdamWValues {
  float* values;
  const float* gradients;
  M *exp_avg, *exp_avg_sq;
  R* rounded;  // null: without copies
  // Of each block of kParameterAlignment values:
  const uint8_t* decays;
  float *exp_avg_max, *exp_avg_sq_max;  // null unless there are codes
};

// The rates as factors of an update's float32 arithmetic. What rounding would make of 1 - beta is taken from float64.
struct AdamWFactors {
  float new_in_exp_avg, old_in_exp_avg_sq, new_in_exp_avg_sq;  // 1 - beta1, beta2, 1 - beta2
  float eps;
};

// What depends on the update.
struct AdamWStep {
  float inverse_divisor;  // of the gradients
  float kept_by_decay;    // 1 - learning_rate weight_decay
  float rate;             // learning_rate / (1 - beta1^t)
  float inverse_root;     // 1 / sqrt(1 - beta2^t)
  uint32_t number;        // t
};

// Keys the random bits that decide how a moment is rounded. What differs from update to update is their counter.
inline constexpr uint64_t kRoundingKey = 0x9fb21c651e98df25;

}  // namespace gpt::ops
