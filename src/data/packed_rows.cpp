#include "gpt/data/packed_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/seeds.h"
#include "gpt/data/permutation.h"

namespace gpt::data {
namespace {

bool has_mark(const Tokens& tokens, int64_t i, uint8_t mark) { return (tokens.mark(i) & mark) != 0; }

int64_t end_of_conversation(const Tokens& tokens, int64_t begin) {
  int64_t end = begin + 1;
  while (end < tokens.size() && !has_mark(tokens, end, TokenMark::kBegins)) ++end;
  return end;
}

// Where the first tokens of [begin, end) end that go into so many positions.
int64_t end_of_kept(const Tokens& tokens, int64_t begin, int64_t end, int64_t positions) {
  const int64_t most = begin + positions + 1;
  if (end <= most) return end;
  int64_t cut = most;
  bool is_learned = false, has_turn = false;
  for (int64_t i = begin + 1; i < most; ++i) {
    is_learned = is_learned || has_mark(tokens, i, TokenMark::kLearned);
    if (is_learned && has_mark(tokens, i, TokenMark::kEnds)) cut = i + 1, has_turn = true;
  }
  return has_turn ? cut : most;
}

// Finds the row for one length after another, the one that it fills best.
class BestFit {
 public:
  explicit BestFit(int64_t length) : length_(length), rows_with_(static_cast<size_t>(length) + 1) {}

  int64_t row_for(int64_t positions) {
    const auto least = left_.lower_bound(positions);
    if (least == left_.end()) return put(count_++, length_ - positions);
    std::vector<int64_t>& rows = rows_with_[static_cast<size_t>(*least)];
    const int64_t row = rows.back(), left = *least - positions;
    rows.pop_back();
    if (rows.empty()) left_.erase(least);
    return put(row, left);
  }
  int64_t count() const { return count_; }

 private:
  int64_t put(int64_t row, int64_t left) {
    if (left > 0) rows_with_[static_cast<size_t>(left)].push_back(row), left_.insert(left);
    return row;
  }

  int64_t length_, count_ = 0;
  std::vector<std::vector<int64_t>> rows_with_;  // so many positions left
  std::set<int64_t> left_;                       // of which there are some
};

}  // namespace

PackedRows::PackedRows(const Tokens& tokens, int64_t length, bool packs, uint64_t seed) : length_(length), seed_(seed) {
  read(tokens);
  if (conversations_.empty())
    throw Error(ExitCode::data,
                fmt::format("the conversations have nothing to learn within sequences of {} ({} were left out); raise "
                            "training.sequence_length, or look at what is marked as learned",
                            plural(length, "token"), with_commas(left_out_)));
  pack(packs);
}

void PackedRows::read(const Tokens& tokens) {
  for (int64_t begin = 0, end = 0; begin < tokens.size(); begin = end) {
    end = end_of_conversation(tokens, begin);
    const int64_t kept = end_of_kept(tokens, begin, end, length_);
    int32_t learned = 0;
    for (int64_t i = begin + 1; i < kept; ++i) learned += has_mark(tokens, i, TokenMark::kLearned) ? 1 : 0;
    if (learned == 0) {
      ++left_out_;
      continue;
    }
    cut_ += kept < end ? 1 : 0;
    learned_ += learned, positions_ += kept - begin - 1;
    conversations_.push_back({begin, static_cast<int32_t>(kept - begin - 1), learned});
  }
  std::ranges::stable_sort(conversations_, std::greater{}, &Segment::length);
}

void PackedRows::pack(bool packs) {
  const size_t count = conversations_.size();
  std::vector<int64_t> row_of(count);
  BestFit fit(length_);
  for (size_t slot = 0; slot < count; ++slot)
    row_of[slot] = packs ? fit.row_for(conversations_[slot].length) : static_cast<int64_t>(slot);
  row_begins_.assign(packs ? static_cast<size_t>(fit.count()) + 1 : count + 1, 0);
  for (const int64_t row : row_of) ++row_begins_[static_cast<size_t>(row) + 1];
  for (size_t row = 1; row < row_begins_.size(); ++row) row_begins_[row] += row_begins_[row - 1];
  std::vector<int64_t> next(row_begins_.begin(), row_begins_.end() - 1);
  slots_.resize(count);
  for (size_t slot = 0; slot < count; ++slot)
    slots_[static_cast<size_t>(next[static_cast<size_t>(row_of[slot])]++)] = static_cast<int64_t>(slot);
}

uint64_t PackedRows::key(int64_t epoch) const { return mix64(mix64(seed_) + static_cast<uint64_t>(epoch)); }

SegmentRow PackedRows::row(int64_t row) const {
  SegmentRow segments;
  for (int64_t i = row_begins_[static_cast<size_t>(row)]; i < row_begins_[static_cast<size_t>(row) + 1]; ++i)
    segments.push_back(conversations_[static_cast<size_t>(slots_[static_cast<size_t>(i)])]);
  return segments;
}

SegmentRow PackedRows::row_in_turn(int64_t epoch, int64_t turn) const {
  const auto number =
      static_cast<size_t>(Permutation(static_cast<uint64_t>(size()), key(epoch))(static_cast<uint64_t>(turn)));
  SegmentRow segments;
  for (int64_t i = row_begins_[number]; i < row_begins_[number + 1]; ++i) {
    const int64_t slot = slots_[static_cast<size_t>(i)];
    const int32_t length = conversations_[static_cast<size_t>(slot)].length;
    const auto equals = std::ranges::equal_range(conversations_, length, std::greater{}, &Segment::length);
    const Permutation places(equals.size(), mix64(key(epoch) + static_cast<uint64_t>(length)));
    const int64_t place = slot - (equals.begin() - conversations_.begin());
    segments.push_back(equals[static_cast<int64_t>(places(static_cast<uint64_t>(place)))]);
  }
  return segments;
}

int64_t learned_in(const SegmentRow& row) {
  int64_t learned = 0;
  for (const Segment& segment : row) learned += segment.learned;
  return learned;
}

Tokens learned_ids(const Tokens& tokens, const SegmentRow& row) {
  std::vector<int32_t> ids;
  for (const auto& [start, positions, learned] : row)
    for (int64_t i = start + 1; i <= start + positions; ++i)
      if (has_mark(tokens, i, TokenMark::kLearned)) ids.push_back(tokens[i]);
  return Tokens::from_ids(ids, std::numeric_limits<int32_t>::max());
}

void write_rows(const Tokens& tokens, const std::vector<SegmentRow>& rows, int64_t length, const RowsInMemory& to) {
  for (size_t row = 0; row < rows.size(); ++row) {
    const int64_t first = static_cast<int64_t>(row) * length;
    int64_t at = 0;
    for (const auto& [start, positions, learned] : rows[row]) {
      if (to.starts) std::fill_n(to.starts + first + at, positions, at);
      for (int64_t i = start; i < start + positions; ++i, ++at) {
        to.inputs[first + at] = tokens[i];
        to.targets[first + at] = has_mark(tokens, i + 1, TokenMark::kLearned) ? tokens[i + 1] : -1;
      }
    }
    std::fill_n(to.inputs + first + at, length - at, 0);
    std::fill_n(to.targets + first + at, length - at, -1);
    if (to.starts) std::fill_n(to.starts + first + at, length - at, at);
  }
}

}  // namespace gpt::data
