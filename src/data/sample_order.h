// Which window of a split is which sample: the arithmetic of the data loader, without tensors.
// Sample i of an epoch is tokens [iT + r, (i+1)T + r]; the offset r and the order of the samples are keyed by (seed, epoch).
#pragma once

#include <cstdint>

#include "gpt/data/permutation.h"

namespace gpt {

class SampleOrder {
 public:
  // tokens > block_size.
  SampleOrder(int64_t tokens, int64_t block_size, uint64_t seed) : block_size_(block_size), seed_(seed) {
    // Room for an offset of up to T - 1 costs one window at most. Where that would be the only window, it stays, and the
    // offset takes what is left over.
    const bool roomy = tokens >= 2 * block_size;
    samples_ = roomy ? (tokens - block_size) / block_size : (tokens - 1) / block_size;
    offsets_ = roomy ? block_size : tokens - samples_ * block_size;
  }

  int64_t samples_per_epoch() const { return samples_; }

  // The first tokens of `count` samples of an epoch, in its order, from `sample` on.
  void starts(int64_t epoch, int64_t sample, int64_t count, int64_t* out) const {
    const uint64_t key = mix64(mix64(seed_) + static_cast<uint64_t>(epoch));
    const auto offset = static_cast<int64_t>(mix64(key) % offsets_);
    const Permutation order(samples_, key);
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int64_t>(order(sample + i)) * block_size_ + offset;
  }

 private:
  int64_t block_size_;
  uint64_t seed_;
  int64_t samples_, offsets_;
};

}  // namespace gpt
