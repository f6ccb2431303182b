// How often each distinct piece of a text occurs, counted on all threads. Memory grows with the distinct pieces, not with
// the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/tokenizer/pre_tokenizer.h"

namespace gpt::tokenizer {

// A hash table from pieces to counts, with linear probing.
class PieceTable {
 public:
  struct Piece {
    std::string_view text;
    size_t hash;
    uint64_t count;
  };

  static size_t hash_of(std::string_view text) { return std::hash<std::string_view>{}(text); }

  void add(std::span<const Piece> pieces);
  size_t size() const { return size_; }
  size_t long_bytes() const { return bytes_.size(); }  // bytes of the texts that do not fit their slots
  void clear();                                        // keeps the memory

  template <typename Visit>
  void for_each(Visit visit) const {  // visit(piece)
    for (const Slot& slot : slots_) {
      if (slot.count > 0) visit(Piece{text_of(slot), hash_of(text_of(slot)), slot.count});
    }
  }

 private:
  // A short text is stored in the slot, which saves a trip to memory for nearly all pieces; a long one in bytes_. Hashes are
  // not stored: where pieces hardly recur, the slots take most of the memory.
  struct Key {
    static constexpr size_t kInSlot = 15;
    static constexpr uint64_t kLong = uint64_t{1} << 63;
    uint64_t low = 0;   // the text, or its offset in bytes_
    uint64_t high = 0;  // the rest of the text and, in the last byte, its length; or kLong + its length
    bool operator==(const Key&) const = default;
  };
  struct Slot {
    uint64_t count = 0;  // 0: a free slot
    Key key;
  };

  std::string_view text_of(const Slot& slot) const;
  bool holds(const Slot& slot, const Piece& piece, const Key& short_key) const;
  void add(const Piece& piece);
  void grow();

  std::vector<Slot> slots_;  // a power of two of them
  std::string bytes_;
  size_t size_ = 0;
};

class PieceCounter {
 public:
  PieceCounter(SplitPattern split, int threads);

  // Counts the pieces of `text`, whose end also ends a piece.
  void add(std::string_view text);

  struct Total {
    size_t pieces = 0, bytes = 0;
  };
  Total distinct();

  // Hands over the counts: visit(piece, count) for each distinct piece, in no particular order.
  void take(const std::function<void(std::string_view, uint64_t)>& visit);

 private:
  // Each thread counts into a table of its own that stays in the cache, and empties it into the shards when it is full.
  struct Shard {
    std::mutex mutex;
    PieceTable table;
  };

  void finish();
  void count_pending();
  void count(const std::vector<std::string_view>& chunks);
  void count(std::string_view chunk, PieceTable& local);
  void empty_into_shards(PieceTable& local);

  SplitPattern split_;
  std::string pending_;       // short texts wait here until there is work for all threads
  std::vector<size_t> ends_;  // the ends of the texts in pending_
  std::vector<PieceTable> locals_;
  std::vector<Shard> shards_;
};

}  // namespace gpt::tokenizer
