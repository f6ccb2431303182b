#include "gpt/data/permutation.h"

#include "gpt/core/seeds.h"

namespace gpt::data {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio: SplitMix64's increment
// Four rounds are enough for large halves; with halves of two or three bits a chi-square test sees a bias below ten.
constexpr int kRounds = 10;

}  // namespace

Permutation::Permutation(uint64_t size, uint64_t key) : size_(size), key_(mix64(key + kGolden)), half_bits_(0) {
  while (half_bits_ < 32 && (uint64_t{1} << 2 * half_bits_) < size) ++half_bits_;
}

uint64_t Permutation::operator()(uint64_t index) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  // The network permutes a power of four that is less than 4 * size; walking its cycle comes back below size.
  do {
    uint64_t left = index >> half_bits_;
    uint64_t right = index & mask;
    for (int round = 1; round <= kRounds; ++round) {
      const uint64_t mixed = left ^ (mix64((key_ + round * kGolden) ^ right) & mask);
      left = right;
      right = mixed;
    }
    index = left << half_bits_ | right;
  } while (index >= size_);
  return index;
}

}  // namespace gpt::data
