// A hash table from pairs of tokens to what is known about them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace gpt::tokenizer {

using TokenPair = std::pair<int32_t, int32_t>;

// Ordered as pairs are: by left token, then by right one.
inline uint64_t key_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

inline TokenPair pair_of(uint64_t key) { return {static_cast<int32_t>(key >> 32), static_cast<int32_t>(key)}; }

// With linear probing.
class PairTable {
 public:
  struct Entry {
    static constexpr uint32_t kUnlisted = std::numeric_limits<uint32_t>::max();
    uint64_t key = kFree;
    int64_t count = 0;           // occurrences in the text
    uint32_t size = 0;           // occurrences in the distinct pieces
    uint32_t first = kUnlisted;  // where the list of these begins
  };

  explicit PairTable(size_t expected = 0);
  size_t size() const { return size_; }
  Entry* find(uint64_t key);  // nullptr if there is none; valid until the next insertion
  Entry& find_or_insert(uint64_t key);
  void prefetch(uint64_t key) const { __builtin_prefetch(&slots_[home(key)], 1); }

  template <typename Visit>
  void for_each(Visit visit) {
    for (Entry& entry : slots_) {
      if (entry.key != kFree) visit(entry);
    }
  }

  template <typename Wanted>
  void keep_if(Wanted wanted) {  // wanted(key)
    PairTable kept(
        size_);  // sized at once: keys come in the order of their hashes, which would pile up in a growing table
    for_each([&](const Entry& entry) {
      if (wanted(entry.key)) kept.find_or_insert(entry.key) = entry;
    });
    *this = std::move(kept);
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  size_t home(uint64_t key) const { return key * 0x9E3779B97F4A7C15 >> shift_; }
  Entry& slot(uint64_t key);  // the key's slot, or the free one where it belongs
  void grow();

  std::vector<Entry> slots_;  // a power of two of them
  size_t size_ = 0;
  int shift_;  // from a hash to a slot
};

}  // namespace gpt::tokenizer
