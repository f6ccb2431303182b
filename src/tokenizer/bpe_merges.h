// The merge rules of a byte-pair encoding, looked up by pair, and their application to one piece of text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpt/tokenizer/bpe_model.h"

namespace gpt::tokenizer {

class BpeMerges {
 public:
  explicit BpeMerges(size_t count = 0);  // room for this many rules; at most BpeModel::kMostTokens
  // The next rule: `left` and `right` become `product`. A later rule for the same pair replaces the earlier one.
  void add(int32_t left, int32_t right, int32_t product);

  // Replaces ids[first..] with what they merge into: each time the pair with the earliest rule, the leftmost of equal ones.
  void apply(std::vector<int32_t>& ids, size_t first) const;

 private:
  static constexpr int kIdBits = 21, kRankBits = 64 - 2 * kIdBits;
  static_assert(BpeModel::kMostTokens < (1 << kIdBits));

  // The number of a rule; kNone: the pair is not merged.
  static constexpr uint32_t kNone = (uint32_t{1} << kRankBits) - 1;
  uint32_t rank_of(int32_t left, int32_t right) const;

  // perf: OPT-5. Most look-ups find nothing, and their cost is cache lines and unpredictable branches. So a rule takes eight
  // bytes, with the pair in the high bits and the rank in the low ones; four rules lie together and are searched without a
  // branch; and the products are stored separately.
  static constexpr size_t kBucket = 4;
  struct alignas(32) Bucket {
    std::array<uint64_t, kBucket> rules;  // filled from the first on
  };
  static constexpr uint64_t kFree = ~uint64_t{0};
  static uint64_t pair_of(int32_t left, int32_t right) { return static_cast<uint64_t>(left) << kIdBits | right; }
  static uint64_t hash_of(uint64_t pair);

  // In most vocabularies the lowest ids are the bytes, whose pairs are looked up most: they have a square table, in which
  // the rows of letters stay in the cache as hashed slots would not.
  static constexpr int32_t kLow = 256;
  static bool both_low(int32_t left, int32_t right) { return (left | right) < kLow; }

  // perf: OPT-5. What training made is numbered in the order of the merges, which saves a wait for memory.
  int32_t product_of(uint32_t rank) const {
    return are_numbered_ ? products_.front() + static_cast<int32_t>(rank) : products_.data()[rank];
  }

  size_t apply_to_few(int32_t* ids, size_t count) const;
  size_t apply_to_many(int32_t* ids, size_t count) const;

  std::vector<int32_t> products_;    // by rank
  bool are_numbered_ = true;         // the products: one after the other
  std::vector<uint32_t> low_pairs_;  // ranks
  std::vector<Bucket> buckets_;      // the other pairs: a power of two of them; a full one overflows into the next
  int shift_;                        // from a 64-bit hash to a bucket
  // perf: OPT-5. A bit for each hash that one of those pairs has. Eight times as many as rules, they answer nine of ten
  // look-ups that find nothing, and leave the cache to the buckets of pairs that are merged.
  std::vector<uint64_t> present_;
  int present_shift_;  // from a 64-bit hash to a bit
};

}  // namespace gpt::tokenizer
