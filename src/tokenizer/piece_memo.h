// What short pieces of text were merged into, so that a word seen before costs one access to a cache line. Each thread has
// a memo, which serves one tokenizer at a time, grows with the distinct pieces up to a limit, and then starts anew.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt::tokenizer {

class PieceMemo {
 public:
  static constexpr size_t kFewIds = 4;
  static constexpr size_t kShort = 15;  // bytes of a piece that is its own key

  // A piece of up to kShort bytes is its own key: the bytes, zeros, and the length in the last byte. A longer one has a hash of its bytes,
  // and a mark and its length.
  struct Key {
    uint64_t low, high;
    bool operator==(const Key&) const = default;
  };

  // To be set in Key::high of what is a part of a piece: a piece of the same bytes may become a token that its merges do not
  // lead to.
  static constexpr uint64_t kPart = uint64_t{1} << 63;

  struct Entry {
    Key key;  // high is 0 where the entry is free
    // Up to four ids, with their number in the highest byte of the first; the others are anything. If that number is 0, the
    // piece has more ids or more bytes than fit here, and `ids[1]` is its place among the long ones.
    std::array<uint32_t, kFewIds> ids;

    bool is_free() const { return key.high == 0; }
    // Writes kFewIds ids, and returns how many of them count.
    size_t copy_ids(int32_t* to) const;
  };

  // The two entries of a cache line. A piece is in its line or, where that was full, in one of the next.
  struct alignas(64) Line {
    std::array<Entry, 2> entries;

    // Writes kFewIds ids, and returns how many of them count: 0 where the ids are not in this line.
    size_t copy_ids(const Key& key, int32_t* to) const;
  };

  static bool is_short(std::string_view piece) { return piece.size() <= kShort; }

  // A number for a tokenizer.
  static uint32_t new_owner() {
    static std::atomic<uint32_t> next{1};
    return next++;
  }

  // The thread's memo, emptied if it served another tokenizer.
  static PieceMemo& of_this_thread(uint32_t owner);

  // The key of text[begin, begin + bytes), of at least one byte.
  static Key key_of(std::string_view text, size_t begin, size_t bytes);

  // Where a piece is looked for first. It holds until moves() changes.
  const Line& line_of(const Key& key) const {
    const uint64_t hash = (key.low ^ key.high * 0xC2B2AE3D27D4EB4Fu) * 0x9E3779B97F4A7C15u;
    return lines_.get()[hash >> shift_];
  }
  size_t moves() const { return moves_; }

  // Appends the ids of a piece or a part: those remembered, or what `encode` appends.
  template <class Encode>
  void append(const Key& key, std::string_view piece, std::vector<int32_t>& ids, Encode&& encode) {
    if (used_ >= most_ || long_bytes_.size() > kMostLongBytes) make_room();
    Entry& entry = entry_of(key);
    if (append_known(entry, piece, ids)) return;
    const size_t before = ids.size();
    encode();
    if (entry.is_free()) remember(entry, key, piece, std::span(ids).subspan(before));
  }

 private:
  static constexpr int kCountShift = 24;
  static constexpr size_t kMostBytes = 255;                // of a piece that is remembered
  static constexpr uint64_t kLong = uint64_t{0x40} << 56;  // in Key::high
  static constexpr size_t kFewestLines = size_t{1} << 12, kMostLines = size_t{1} << 19;  // 256 kB, 32 MB
  static constexpr size_t kMostLongBytes = size_t{1} << 23;

  static constexpr std::array<Key, kShort + 1> kMasks = [] {
    std::array<Key, kShort + 1> masks{};
    for (size_t bytes = 0; bytes <= kShort; ++bytes) {
      for (size_t i = 0; i < bytes; ++i) (i < 8 ? masks[bytes].low : masks[bytes].high) |= uint64_t{0xFF} << i % 8 * 8;
    }
    return masks;
  }();

  struct LongPiece {
    uint32_t bytes, ids, count;
  };
  struct Unmap {
    void* memory;
    size_t bytes;
    void operator()(Line*) const;
  };
  using Lines = std::unique_ptr<Line[], Unmap>;

  static Key long_key(std::string_view piece);
  static Lines new_lines(size_t count);
  size_t line_count() const { return size_t{1} << (64 - shift_); }
  Entry& entry_of(const Key& key) const;
  bool append_known(const Entry& entry, std::string_view piece, std::vector<int32_t>& ids) const;
  void remember(Entry& entry, const Key& key, std::string_view piece, std::span<const int32_t> ids);
  void make_room();
  void start_anew(size_t lines);

  uint32_t owner_ = 0;
  Lines lines_{nullptr, Unmap{nullptr, 0}};
  int shift_ = 0;               // from a hash to a line
  size_t used_ = 0, most_ = 0;  // entries
  size_t moves_ = 0;            // how often lines_ became others
  // Pieces that do not fit an entry: their bytes and their ids follow each other.
  std::vector<LongPiece> long_pieces_;
  std::string long_bytes_;
  std::vector<int32_t> long_ids_;
};

inline size_t PieceMemo::Entry::copy_ids(int32_t* to) const {
  uint64_t low, high;
  std::memcpy(&low, ids.data(), sizeof low);
  std::memcpy(&high, ids.data() + 2, sizeof high);
  const size_t count = static_cast<uint32_t>(low) >> kCountShift;
  low &= ~(uint64_t{0xFF} << kCountShift);
  std::memcpy(to, &low, sizeof low);
  std::memcpy(to + 2, &high, sizeof high);
  return count;
}

// Without branches but for the one that the result leads to.
inline size_t PieceMemo::Line::copy_ids(const Key& key, int32_t* to) const {
  const bool first = entries.data()[0].key == key, second = entries.data()[1].key == key;
  const size_t count = entries.data()[second].copy_ids(to);
  return first | second ? count : 0;
}

inline PieceMemo::Key PieceMemo::key_of(std::string_view text, size_t begin, size_t bytes) {
  if (bytes > kShort) return long_key({text.data() + begin, bytes});
  Key key{0, 0};
  if (begin + sizeof(Key) <= text.size()) {
    std::memcpy(&key, text.data() + begin, sizeof(Key));  // a fixed size is two loads; the excess is masked off
    key.low &= kMasks.data()[bytes].low;
    key.high &= kMasks.data()[bytes].high;
  } else {
    std::memcpy(&key, text.data() + begin, bytes);
  }
  key.high |= static_cast<uint64_t>(bytes) << 56;
  return key;
}

}  // namespace gpt::tokenizer
