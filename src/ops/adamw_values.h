// What the kernels of AdamW are given, on every device. Small: cmake/CpuKernels.cmake says why.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace gpt::ops {

// M: the type of the moments, which uint8_t keeps as codes (moment_map.h).
template <class M>
struct AdamWValues {
  float* values;           // null: `rounded` is all there is of them
  c10::BFloat16* rounded;  // null: there are only `values`
  // One of the two, the other is null:
  const float* gradients;
  const c10::BFloat16* rounded_gradients;
  M *exp_avg, *exp_avg_sq;
  // For each block of kParameterAlignment values:
  const uint8_t* decays;
  float *exp_avg_max, *exp_avg_sq_max;  // null unless there are codes
  int64_t first_block;                  // what random bits count from
};

// The rates as factors of an update's float32 arithmetic. What rounding would make of 1 - beta is taken from float64.
struct AdamWFactors {
  float new_in_exp_avg, old_in_exp_avg_sq, new_in_exp_avg_sq;  // 1 - beta1, beta2, 1 - beta2
  float eps;
  bool is_cautious;  // weight decay only where the update moves a value towards zero
};

// What depends on the update.
struct AdamWStep {
  float inverse_divisor;  // 1 / divisor of the gradients
  float kept_by_decay;    // 1 - learning_rate decay_share weight_decay
  float rate;             // learning_rate / (1 - beta1^t)
  float inverse_root;     // 1 / sqrt(1 - beta2^t)
  uint32_t number;        // t
};

// Key the random bits that decide how a moment and a value are rounded. What differs from update to update is their counter.
inline constexpr uint64_t kMomentRoundingKey = 0x9fb21c651e98df25, kValueRoundingKey = 0xd6e8feb86659fd93;

}  // namespace gpt::ops
