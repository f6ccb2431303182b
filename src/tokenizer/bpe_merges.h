// The merge rules of a byte-pair encoding, looked up by pair, and their application to one piece of text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace gpt {

class BpeMerges {
 public:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  struct Rule {
    uint32_t rank = kNone;  // lower is merged first; kNone: the pair stays apart
    int32_t product = -1;
  };

  explicit BpeMerges(size_t count = 0);              // room for so many rules
  void add(int32_t left, int32_t right, Rule rule);  // instead of an earlier one for the same pair
  Rule find(int32_t left, int32_t right) const;

  // Replaces ids[first..] by what they merge into: always the pair of the lowest rank, the leftmost of equal ones.
  void apply(std::vector<int32_t>& ids, size_t first) const;

 private:
  struct Slot {
    uint64_t pair = kFree;
    Rule rule;
  };
  static constexpr uint64_t kFree = ~uint64_t{0};
  static uint64_t pair_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  // In most vocabularies the lowest ids are the bytes, whose pairs are looked up most: a square of them, where the rows
  // of letters stay in the cache as hashed slots would not.
  static constexpr int32_t kLow = 256;
  static bool both_low(int32_t left, int32_t right) { return (left | right) < kLow; }

  size_t slot_of(uint64_t pair) const;
  size_t apply_to_few(int32_t* ids, size_t count) const;
  size_t apply_to_many(int32_t* ids, size_t count) const;

  std::vector<Rule> low_pairs_;
  std::vector<Slot> slots_;  // the other pairs: open addressing, a power of two of them, at most half of them taken
  int shift_;                // from a 64-bit hash to a slot
};

}  // namespace gpt
