// The distinct pieces of a text as sequences of tokens, and the pairs of neighbouring tokens in the order in which BPE
// training merges them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <queue>
#include <string_view>
#include <utility>
#include <vector>

namespace gpt {

using TokenPair = std::pair<int32_t, int32_t>;

// A hash table from pairs to what is known about them, with linear probing.
class PairTable {
 public:
  struct Entry {
    uint64_t key = kFree;
    int64_t count = 0;  // occurrences in the text
    // Occurrences in the distinct pieces, ascending within each. The pair may no longer be there.
    uint32_t* positions = nullptr;
    uint32_t size = 0;
  };

  explicit PairTable(size_t expected = 0);
  Entry* find(uint64_t key);  // nullptr if there is none; valid until the next insertion
  Entry& find_or_insert(uint64_t key);
  void prefetch(uint64_t key) const;

  template <typename Visit>
  void for_each(Visit visit) {
    for (Entry& entry : slots_) {
      if (entry.key != kFree) visit(entry);
    }
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  size_t home(uint64_t key) const { return key * 0x9E3779B97F4A7C15 >> shift_; }
  Entry& slot(uint64_t key);  // of the key, or the free one where it belongs
  void grow();

  std::vector<Entry> slots_;  // a power of two of them
  size_t size_ = 0;
  int shift_;  // of a hash, to a slot
};

class PairQueue {
 public:
  // Pairs that occur less often than `min_count` are never merged.
  explicit PairQueue(int64_t min_count) : min_count_(min_count > 1 ? min_count : 1) {}

  // Adds the next token, of `bytes` bytes; ids count from 0.
  void add_token(size_t bytes);
  // Adds a piece, with one token per byte.
  void add_piece(std::string_view piece, const std::array<int32_t, 256>& token_of_byte, uint64_t count);

  // The pair to merge: the most frequent one, the smallest of equally frequent ones; none when all are too rare.
  std::optional<TokenPair> next();
  // Replaces every occurrence of `pair` with the one token `product`.
  void merge(TokenPair pair, int32_t product);

 private:
  // A token of n bytes takes n cells, of which the first and the last hold its id: both neighbours of a token are one step
  // away, and nothing moves when two tokens become one. A cell without a token stands before and after each piece.
  struct Cell {
    int32_t token;
    uint32_t count;  // of the piece
  };
  struct Candidate {
    int64_t count;
    uint64_t key;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : key > other.key;
    }
  };
  // What a merge changes for one token next to the pair.
  struct Neighbour {
    int64_t count = 0;
    uint32_t occurrences = 0;
    uint32_t* positions = nullptr;  // where the next position of its pair with the product goes; nullptr: a rare pair
  };
  struct Side {
    std::vector<Neighbour> neighbours;                 // by token
    std::vector<int32_t> seen;                         // those that are not empty
    std::vector<std::pair<int32_t, uint32_t>> places;  // neighbour, position of its pair with the product
    void note(int32_t token, uint32_t position, uint32_t count);
  };

  struct Occurrence {
    uint64_t key;
    uint32_t position;
    uint32_t count;
  };

  template <typename Visit>
  void for_each_pair(const PairTable& table, Visit visit) const;  // prefetches the entries of `table`
  void build_index();
  void replace_occurrences(const PairTable::Entry& occurrences, TokenPair pair, int32_t product);
  template <typename Key>
  void index_products(Side& side, Key key_with_product);
  void lower_counts(TokenPair pair);
  template <typename Key>
  void enqueue_products(Side& side, Key key_with_product);

  int64_t min_count_;
  std::vector<uint32_t> bytes_;  // of each token
  std::vector<Cell> cells_;

  // Only pairs of at least threshold_ occurrences are in the table and the heap, because most pairs are rare and never
  // merged. When the heap runs dry, the index is rebuilt with a lower threshold.
  int64_t threshold_ = 0;
  PairTable pairs_;
  std::priority_queue<Candidate> heap_;  // the actual counts may have fallen since
  std::vector<std::unique_ptr<uint32_t[]>> positions_;
  Side left_, right_;
};

}  // namespace gpt
