// What short pieces of text were merged into, so that a word seen before costs one access to a cache line. One memo per
// thread, of a fixed size, shared by all tokenizers: a piece replaces the one that was in its slot.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace gpt {

class PieceMemo {
 public:
  static constexpr size_t kMaxBytes = 23;
  static constexpr size_t kMaxIds = 8;

  // The bytes of a piece, zeros, and its length in the last byte.
  using Key = std::array<uint64_t, 3>;
  struct alignas(64) Entry {
    Key key{};
    uint32_t owner = 0;  // which tokenizer; 0 is none
    uint32_t count = 0;
    std::array<int32_t, kMaxIds> ids{};

    Entry() = default;
    Entry(const Key& key, uint32_t owner, std::span<const int32_t> result)
        : key(key), owner(owner), count(static_cast<uint32_t>(result.size())) {
      std::copy(result.begin(), result.end(), ids.begin());
    }
    bool holds(const Key& wanted, uint32_t of) const {
      // One branch instead of four.
      return ((key[0] ^ wanted[0]) | (key[1] ^ wanted[1]) | (key[2] ^ wanted[2]) | (owner ^ of)) == 0;
    }
  };

  // A number for a tokenizer.
  static uint32_t new_owner() {
    static std::atomic<uint32_t> next{1};
    return next++;
  }

  static PieceMemo& of_this_thread() {
    static thread_local PieceMemo memo;
    return memo;
  }

  // The key of text[begin, begin + bytes), at most kMaxBytes.
  static Key key_of(std::string_view text, size_t begin, size_t bytes) {
    Key key{};
    if (begin + sizeof(Key) <= text.size()) {
      std::memcpy(key.data(), text.data() + begin,
                  sizeof(Key));  // a fixed size is three loads; the excess is masked off
      for (size_t i = 0; i < key.size(); ++i) key[i] &= kMasks[bytes][i];
    } else {
      std::memcpy(key.data(), text.data() + begin, bytes);
    }
    key[2] |= static_cast<uint64_t>(bytes) << 56;
    return key;
  }

  // Appends the ids of a piece of at most kMaxBytes: those remembered, or what `encode` appends.
  template <class Encode>
  void append(std::string_view piece, uint32_t owner, std::vector<int32_t>& ids, Encode&& encode) {
    const Key key = key_of(piece, 0, piece.size());
    Entry& entry = entry_of(key, owner);
    if (entry.holds(key, owner)) {
      ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.count);
      return;
    }
    const size_t before = ids.size();
    encode();
    const std::span<const int32_t> result = std::span(ids).subspan(before);
    if (result.size() <= kMaxIds) entry = Entry(key, owner, result);
  }

  Entry& entry_of(const Key& key, uint32_t owner) {
    uint64_t hash = key[0] * 0x9E3779B97F4A7C15u + key[1] * 0xC2B2AE3D27D4EB4Fu + key[2] * 0xD6E8FEB86659FD93u + owner;
    hash = (hash ^ hash >> 32) * 0x9E3779B97F4A7C15u;
    return entries_[hash >> (64 - kSlotBits)];
  }

 private:
  static constexpr int kSlotBits = 16;
  static constexpr std::array<Key, kMaxBytes + 1> kMasks = [] {
    std::array<Key, kMaxBytes + 1> masks{};
    for (size_t bytes = 0; bytes <= kMaxBytes; ++bytes) {
      for (size_t i = 0; i < bytes; ++i) masks[bytes][i / 8] |= uint64_t{0xFF} << i % 8 * 8;
    }
    return masks;
  }();

  std::unique_ptr<Entry[]> entries_ = std::make_unique<Entry[]>(size_t{1} << kSlotBits);
};

}  // namespace gpt
