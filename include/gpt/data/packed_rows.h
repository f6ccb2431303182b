// Conversations side by side in rows of T positions, so that few positions are left empty.
//
// One of n tokens takes n - 1 positions: each token but the last is an input, each but the first a target, which counts where it is marked
// as learned. Rows are packed best fit decreasing, so that how many there are, and how long the conversations are that each of them holds,
// follows from the lengths alone and is the same in every epoch. In each epoch conversations of one length change places and the rows come
// in another order; both follow from the seed and the epoch, so that a position in the data is two integers.
//
// A conversation that is longer is cut behind the last turn that fits with something to learn before it, else where the row ends. One of
// whose kept part nothing is learned is left out.
#pragma once

#include <cstdint>
#include <vector>

#include "gpt/data/token_file.h"

namespace gpt::data {

// Tokens [start, start + length] of a source, in `length` positions of a row.
struct Segment {
  int64_t start = 0;
  int32_t length = 0;
  int32_t learned = 0;  // of its targets so many count; one or more
  bool operator==(const Segment&) const = default;
};

using SegmentRow = std::vector<Segment>;  // from the row's first position on; what it leaves free is padding

class PackedRows {
 public:
  // Reads the marks of `tokens`, which begin with a conversation. `packs`: several may share a row. Throws gpt::Error(data) where nothing is
  // left to learn.
  PackedRows(const Tokens& tokens, int64_t length, bool packs, uint64_t seed);

  int64_t size() const { return static_cast<int64_t>(row_begins_.size()) - 1; }  // rows, the same ones in every epoch
  SegmentRow row(int64_t row) const;                          // the conversations that it was packed with
  SegmentRow row_in_turn(int64_t epoch, int64_t turn) const;  // that comes after `turn` others in this epoch

  int64_t conversations() const { return static_cast<int64_t>(conversations_.size()); }  // in rows
  int64_t cut() const { return cut_; }  // of these, those that were too long
  int64_t left_out() const { return left_out_; }
  int64_t learned() const { return learned_; }      // targets that count in an epoch
  int64_t positions() const { return positions_; }  // that are no padding

 private:
  void read(const Tokens& tokens);
  void pack(bool packs);
  uint64_t key(int64_t epoch) const;

  int64_t length_;
  uint64_t seed_;
  std::vector<Segment> conversations_;  // the longest first; a slot of a row is a place in this order
  std::vector<int64_t> row_begins_;     // row r has the slots [row_begins_[r], row_begins_[r + 1]) of slots_
  std::vector<int64_t> slots_;
  int64_t cut_ = 0, left_out_ = 0, learned_ = 0, positions_ = 0;
};

int64_t learned_in(const SegmentRow& row);                        // its targets that count
Tokens learned_ids(const Tokens& tokens, const SegmentRow& row);  // which they are

// Where rows go, (rows, T) each; `starts` may be null.
struct RowsInMemory {
  int64_t *inputs, *targets;
  int64_t* starts;  // where the segment of a position begins in its row; what is behind the last one counts as one
};

// Targets that do not count are -1. Padding has inputs of 0, which are an id of every vocabulary, and such targets.
void write_rows(const Tokens& tokens, const std::vector<SegmentRow>& rows, int64_t length, const RowsInMemory& to);

}  // namespace gpt::data
