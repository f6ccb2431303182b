// What the kernels of optimizers share: blocks of kParameterAlignment values, converted between float32 and the types in which values
// and moments are kept. For kernels that cmake/CpuKernels.cmake compiles.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "gpt/layout/alignment.h"
#include "gpt/simd/float_pair.h"
#include "gpt/simd/philox.h"
#include "ops/moment_map.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {

inline constexpr int64_t kWidth = FloatVector::size(), kBlock = layout::kParameterAlignment;

// A block, rounded to nearest where the result has fewer bits.
template <class From, class To>
void convert(const From* from, To* to) {
  for (int64_t i = 0; i < kBlock; i += FloatPair::size()) store(load(from + i), to + i);
}

// Up with the probability of what lies above the lower neighbour: 16 random bits are added to those that are cut off.
inline void round_at_random(const float* from, uint64_t key, uint32_t number, int64_t block, c10::BFloat16* to) {
  // Each call gives 4 words in each lane, and a word has the bits for two values.
  constexpr int64_t kCalls = kBlock / (2 * 4 * kPhiloxLanes);
  alignas(64) uint32_t random[kBlock];
  for (int64_t call = 0; call < kCalls; ++call) {
    const auto counter = static_cast<uint64_t>(block * kCalls + call) * kPhiloxLanes;
    const PhiloxWords drawn = philox(key, static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), number,
                                     /*fourth=*/0);
    std::memcpy(&random[call * 4 * kPhiloxLanes], drawn.words, sizeof drawn.words);
  }
  for (int64_t i = 0; i < kBlock / 2; ++i) random[kBlock / 2 + i] = random[i] >> 16, random[i] &= 0xffff;
  for (int64_t i = 0; i < kBlock; ++i)
    to[i].x = static_cast<uint16_t>((std::bit_cast<uint32_t>(from[i]) + random[i]) >> 16);
}

template <bool is_signed>
void decode(const uint8_t* codes, float maximum, float* to) {
  for (int64_t i = 0; i < kBlock; ++i) to[i] = decoded_moment<is_signed>(codes[i]) * maximum;
}

template <bool is_signed>
void encode(const float* from, uint8_t* codes, float& maximum) {
  FloatVector largest(0.0f);
  for (int64_t i = 0; i < kBlock; i += kWidth)
    largest = at::vec::clamp_min(FloatVector::loadu(from + i).abs(), largest);
  maximum = maximum_of(largest);
  const float reciprocal = reciprocal_of_maximum(maximum);
  for (int64_t i = 0; i < kBlock; ++i) codes[i] = static_cast<uint8_t>(encoded_moment<is_signed>(from[i] * reciprocal));
}

// The factors of cautious weight decay: `kept` for the values that subtracting `direction` moves towards zero, 1 for others.
inline FloatVector kept_cautiously(FloatVector kept, FloatVector values, FloatVector direction) {
  return FloatVector::blendv(FloatVector(1.0f), kept, values * direction >= FloatVector(0.0f));
}

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
