// Random bits as a function of a key and a place, so that a dropout mask is not stored but drawn again: Philox4x32-10 of
// Salmon et al. (2011), "Parallel random numbers: as easy as 1, 2, 3". For kernels that cmake/CpuKernels.cmake compiles.
#pragma once

#include <cstdint>

#include "gpt/simd/dropout_mask.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {

inline constexpr int kPhiloxLanes = 8;

// Four random words for each of eight counters of four words, which differ in the first one.
struct PhiloxWords {
  uint32_t words[4][kPhiloxLanes];
};

// The compiler turns the inner loop into vector instructions unless it unrolls it first.
inline PhiloxWords philox(uint64_t key, uint32_t first, uint32_t second, uint32_t third, uint32_t fourth) {
  PhiloxWords x;
  for (uint32_t lane = 0; lane < kPhiloxLanes; ++lane) {
    x.words[0][lane] = first + lane;
    x.words[1][lane] = second;
    x.words[2][lane] = third;
    x.words[3][lane] = fourth;
  }
  auto low_key = static_cast<uint32_t>(key), high_key = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 1
    for (int lane = 0; lane < kPhiloxLanes; ++lane) {
      const uint64_t a = uint64_t{0xD2511F53} * x.words[0][lane], b = uint64_t{0xCD9E8D57} * x.words[2][lane];
      x.words[0][lane] = static_cast<uint32_t>(b >> 32) ^ x.words[1][lane] ^ low_key;
      x.words[1][lane] = static_cast<uint32_t>(b);
      x.words[2][lane] = static_cast<uint32_t>(a >> 32) ^ x.words[3][lane] ^ high_key;
      x.words[3][lane] = static_cast<uint32_t>(a);
    }
    low_key += 0x9E3779B9;
    high_key += 0xBB67AE85;
  }
  return x;
}

// The mask's factors for 64 neighbouring columns, which begin at 64 x `columns`, of a row of a matrix: 0 for those that are dropped.
// Where there is one matrix, `matrix` is the upper half of the row's number. These numbers are those in the update.
inline void dropout_factors(const DropoutMask& mask, uint32_t columns, uint32_t row, uint32_t matrix, float* factors) {
  const PhiloxWords x = philox(mask.key, columns * kPhiloxLanes, row, matrix, mask.site);
  const float factor = mask.factor();
  for (int word = 0; word < 4; ++word) {
    for (int lane = 0; lane < kPhiloxLanes; ++lane) {
      const uint32_t bits = x.words[word][lane];
      factors[16 * word + lane] = (bits & 0xffff) < mask.kept_of_65536 ? factor : 0.0f;
      factors[16 * word + lane + 8] = (bits >> 16) < mask.kept_of_65536 ? factor : 0.0f;
    }
  }
}

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
