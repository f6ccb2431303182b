// Which window of a split is which sample: the arithmetic of the data loader, without tensors.
// Sample i of an epoch is tokens [iT + r, (i+1)T + r]; the offset r and the order of the samples are keyed by (seed, epoch).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gpt/core/seeds.h"
#include "gpt/data/permutation.h"

namespace gpt::data {

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
  int64_t block_size() const { return block_size_; }

  // The first token of sample `index` in the order of the text.
  int64_t start(int64_t epoch, int64_t index) const {
    return index * block_size_ + static_cast<int64_t>(mix64(key(epoch)) % offsets_);
  }

  // The first token of the sample whose turn comes after `sample` others of its epoch.
  int64_t start_in_turn(int64_t epoch, int64_t sample) const {
    if (epoch == 0 && first_epoch_) return start(epoch, (*first_epoch_)[sample]);
    return start(epoch, static_cast<int64_t>(Permutation(samples_, key(epoch))(sample)));
  }

  // Another order for epoch 0: the samples as they follow each other. `make` may read the whole text, so it is called when the
  // first sample is asked for, in whichever thread that is.
  void set_first_epoch(std::function<std::vector<int64_t>()> make) {
    first_epoch_ = std::make_shared<FirstEpoch>(std::move(make));
  }

 private:
  class FirstEpoch {
   public:
    explicit FirstEpoch(std::function<std::vector<int64_t>()> make) : make_(std::move(make)) {}
    int64_t operator[](int64_t turn) {
      std::call_once(once_, [this] { order_ = make_(); });
      return order_[turn];
    }

   private:
    std::once_flag once_;
    std::function<std::vector<int64_t>()> make_;
    std::vector<int64_t> order_;
  };

  uint64_t key(int64_t epoch) const { return mix64(mix64(seed_) + static_cast<uint64_t>(epoch)); }

  int64_t block_size_;
  uint64_t seed_;
  int64_t samples_, offsets_;
  std::shared_ptr<FirstEpoch> first_epoch_;
};

}  // namespace gpt::data
