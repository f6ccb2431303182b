// What the kernels of optimizers share: groups of eight values in the types in which values and moments are kept.
#pragma once

#include <cmath>
#include <cstring>

#include "gpt/layout/alignment.h"
#include "launch.cuh"
#include "ops/moment_map.h"

namespace gpt::ops::cuda {

static_assert(32 * kGroup == layout::kParameterAlignment, "a warp has one block of codes");

// Each value goes up with the probability of what lies above its lower neighbour: 16 random bits are added to those that are cut
// off.
__device__ inline void store_at_random(const Group& group, uint64_t key, int64_t first_block, int64_t begin,
                                       uint32_t number, c10::BFloat16* to) {
  const int64_t place = (first_block * layout::kParameterAlignment + begin) / kGroup;
  const RandomBits random =
      philox(key, static_cast<uint32_t>(place), static_cast<uint32_t>(place >> 32), number, /*fourth=*/0);
  Pack<uint16_t> rounded;
  for (int i = 0; i < kGroup; ++i) {
    uint32_t bits;
    memcpy(&bits, &group.values[i], sizeof bits);
    rounded.values[i] = static_cast<uint16_t>((bits + random.of(i)) >> 16);
  }
  *reinterpret_cast<Pack<uint16_t>*>(to + begin) = rounded;
}

struct alignas(kGroup) Codes {
  uint8_t values[kGroup];
};

template <bool is_signed>
__device__ Group load_codes(const uint8_t* from, float maximum) {
  const Codes codes = *reinterpret_cast<const Codes*>(from);
  Group group;
  for (int i = 0; i < kGroup; ++i) group.values[i] = decoded_moment<is_signed>(codes.values[i]) * maximum;
  return group;
}

template <bool is_signed>
__device__ void store_codes(const Group& group, uint8_t* to, float* maximum) {
  float largest = 0;
  for (int i = 0; i < kGroup; ++i) largest = fmaxf(largest, fabsf(group.values[i]));
  largest = warp_maximum(largest);
  const float reciprocal = reciprocal_of_maximum(largest);
  Codes codes;
  for (int i = 0; i < kGroup; ++i)
    codes.values[i] = static_cast<uint8_t>(encoded_moment<is_signed>(group.values[i] * reciprocal));
  *reinterpret_cast<Codes*>(to) = codes;
  if (threadIdx.x % 32 == 0) *maximum = largest;
}

}  // namespace gpt::ops::cuda
