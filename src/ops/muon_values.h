// What the kernels of Muon are given, on every device. Small: cmake/CpuKernels.cmake says why.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace gpt::ops {

// M: the type of the momentum, which uint8_t keeps as codes (moment_map.h).
template <class M>
struct MuonMomentum {
  // One of the two, the other is null; so for the direction.
  const float* gradients;
  const c10::BFloat16* rounded_gradients;
  M* momentum;
  float* momentum_max;  // for each block of kParameterAlignment values; null unless there are codes
  float* direction;
  c10::BFloat16* rounded_direction;
};

struct MuonValues {
  float* values;           // null: `rounded` is all there is of them
  c10::BFloat16* rounded;  // null: there are only `values`
  // One of the two, the other is null:
  const float* direction;
  const c10::BFloat16* rounded_direction;
  int64_t first_block;  // what random bits count from
};

struct MuonFactors {
  float new_in_momentum, momentum_in_direction;  // 1 - mu, which is taken from float64, and mu
};

// What depends on the update.
struct MuonStep {
  float kept_by_decay;  // 1 - learning_rate decay_share weight_decay
  float rate;           // learning_rate size
  uint32_t number;      // t
  bool is_cautious;
};

}  // namespace gpt::ops
