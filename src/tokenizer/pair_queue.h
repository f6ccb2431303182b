// The distinct pieces of a text as sequences of tokens, and the pairs of neighbouring tokens in the order in which BPE
// training merges them. Memory is a small multiple of the pieces' bytes, whatever the text.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <queue>
#include <string_view>
#include <utility>
#include <vector>

#include "pair_table.h"

namespace gpt::tokenizer {

class PairQueue {
 public:
  static constexpr size_t kLeastRoom = size_t{64} << 20;

  // Pairs that occur less often than `min_count` are never merged. The memory of the index is limited to a share of the
  // pieces' bytes, or of `least_room` if that is more.
  explicit PairQueue(int64_t min_count, size_t least_room = kLeastRoom)
      : min_count_(min_count > 1 ? min_count : 1), least_room_(std::max(least_room, size_t{1} << 10)) {}

  // Adds the next token, of `bytes` bytes; ids count from 0.
  void add_token(size_t bytes);
  // Makes room for `pieces` pieces, of `bytes` bytes together.
  void reserve(size_t pieces, size_t bytes) { cells_.reserve(1 + pieces + bytes); }
  // Adds a piece, with one token per byte.
  void add_piece(std::string_view piece, const std::array<int32_t, 256>& token_of_byte, uint64_t count);

  // The pair to merge: the most frequent one, the smallest of equally frequent ones; none when all are too rare.
  std::optional<TokenPair> next();
  // Replaces every occurrence of `pair`, which next() gave, with the one token `product`.
  void merge(TokenPair pair, int32_t product);

 private:
  // A token of n bytes takes n cells, of which the first and the last hold its id: both neighbours of a token are one step
  // away, and nothing moves when two tokens become one. A cell without a token stands before and after each piece.
  struct Cell {
    uint32_t token : 21;
    uint32_t count : 11;  // the piece's count, as a code
  };
  static_assert(sizeof(Cell) == 4);
  static constexpr uint32_t kNone = (1 << 21) - 1;  // no token begins or ends in this cell

  struct Candidate {
    int64_t count;
    uint64_t key;
    bool operator==(const Candidate&) const = default;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : key > other.key;
    }
  };
  // What a merge changes for one token next to the pair.
  struct Neighbour {
    int64_t count = 0;
    uint32_t occurrences = 0;
    uint32_t next = PairTable::Entry::kUnlisted;  // where the next position of its pair with the product goes
  };
  struct Side {
    std::vector<Neighbour> neighbours;                  // by token
    std::vector<uint32_t> seen;                         // those that are not empty
    std::vector<std::pair<uint32_t, uint32_t>> places;  // neighbour, position of its pair with the product
    void note(uint32_t token, uint32_t position, int64_t count);
  };

  struct Occurrence {
    uint64_t key;
    uint32_t position;
    int64_t count;
  };
  struct HashPart;

  size_t room() const { return std::max(cells_.size(), least_room_); }
  // perf: OPT-6. Where the index can hold fewer pairs it is built more often.
  size_t most_pairs() const { return room() / 128; }    // in a table
  size_t most_positions() const { return room() / 4; }  // in all lists together
  // So frequent that going through the whole text takes no longer than a list of positions would.
  bool is_dense(const PairTable::Entry& entry) const { return entry.size > room() / 64; }
  bool is_frequent(Candidate pair) const { return !(pair < threshold_); }

  template <typename Visit>
  void for_each_pair(const PairTable& table, const HashPart& part, Visit visit) const;
  template <typename Visit>
  void count_pairs(Visit visit) const;
  void build_index();
  std::vector<PairTable::Entry> frequent_pairs();
  void keep_what_fits(std::vector<PairTable::Entry>& pairs);
  void list_occurrences();
  void drop_index();

  void replace_all(TokenPair pair, uint32_t product);
  void replace_listed(PairTable::Entry occurrences, TokenPair pair, uint32_t product);
  template <typename Key>
  bool index_products(Side& side, Key key_with_product);
  void lower_counts(TokenPair pair);
  template <typename Key>
  void enqueue_products(Side& side, Key key_with_product);

  int64_t min_count_;
  size_t least_room_;
  std::vector<uint32_t> bytes_;  // the length of each token
  std::vector<Cell> cells_;

  // Only the pairs from threshold_ on are in the table and the heap, because most pairs are rare and never merged. When the
  // heap runs dry, or what a merge adds has no room, the index is built anew.
  Candidate threshold_{};
  bool is_complete_ = false;  // every pair that may be merged is in the index
  PairTable pairs_;
  std::priority_queue<Candidate> heap_;    // the actual counts may have fallen since
  std::unique_ptr<uint32_t[]> positions_;  // the lists: ascending within each; the pair may no longer be there
  size_t listed_ = 0;
  Side left_, right_;
};

}  // namespace gpt::tokenizer
