#include "gpt/data/packed_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "support/conversations.h"
#include "support/expect_error.h"

namespace gpt::data {
namespace {

constexpr int64_t kVocab = 50;

std::vector<int64_t> some_lengths(int64_t count, double median, double spread, uint32_t seed = 3) {
  std::mt19937 generator(seed);
  std::lognormal_distribution<double> draw(std::log(median), spread);
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i) lengths.push_back(4 + std::llround(draw(generator)));
  return lengths;
}

PackedRows rows_of(const std::vector<int64_t>& lengths, int64_t T, bool packs = true, uint64_t seed = 7) {
  return {test::conversations(lengths, kVocab).tokens(kVocab), T, packs, seed};
}

std::vector<Segment> segments_of(const PackedRows& rows, int64_t epoch) {
  std::vector<Segment> segments;
  for (int64_t turn = 0; turn < rows.size(); ++turn) {
    const SegmentRow row = rows.row_in_turn(epoch, turn);
    segments.insert(segments.end(), row.begin(), row.end());
  }
  return segments;
}

TEST(PackedRows, AnEpochIsEveryConversationOnceWithinItsRow) {
  const std::vector<int64_t> lengths = some_lengths(500, 20, 0.6);
  const PackedRows rows = rows_of(lengths, 64);
  std::map<int64_t, int64_t> expected;  // positions by the first token
  int64_t start = 0;
  for (const int64_t length : lengths) {
    if (length <= 65) expected[start] = length - 1;
    start += length;
  }
  for (const int64_t epoch : {0, 1, 5}) {
    std::map<int64_t, int64_t> found;
    int64_t learned = 0;
    for (const Segment& segment : segments_of(rows, epoch)) {
      EXPECT_TRUE(found.emplace(segment.start, segment.length).second) << "twice: " << segment.start;
      learned += segment.learned;
    }
    EXPECT_EQ(std::ssize(found), 500);
    EXPECT_EQ(learned, rows.learned());
    for (const auto& [first, positions] : expected) EXPECT_EQ(found[first], positions);
    for (int64_t turn = 0; turn < rows.size(); ++turn) {
      int64_t positions = 0;
      for (const Segment& segment : rows.row_in_turn(epoch, turn)) positions += segment.length;
      EXPECT_GE(positions, 1);
      EXPECT_LE(positions, 64);
    }
  }
}

TEST(PackedRows, EpochsHaveOrdersOfTheirOwnThatFollowFromTheSeed) {
  const std::vector<int64_t> lengths = some_lengths(300, 20, 0.5);
  const PackedRows rows = rows_of(lengths, 64), again = rows_of(lengths, 64), other = rows_of(lengths, 64, true, 8);
  const auto first = segments_of(rows, 0);
  EXPECT_EQ(first, segments_of(again, 0));
  EXPECT_NE(first, segments_of(rows, 1));
  EXPECT_NE(first, segments_of(other, 0));
  EXPECT_EQ(rows.row_in_turn(3, 17), again.row_in_turn(3, 17)) << "a position is two integers";
  // Conversations have other neighbours too, not only other places.
  const auto companies = [&](int64_t epoch) {
    std::set<std::set<int64_t>> all;
    for (int64_t turn = 0; turn < rows.size(); ++turn) {
      std::set<int64_t> company;
      for (const Segment& segment : rows.row_in_turn(epoch, turn)) company.insert(segment.start);
      all.insert(company);
    }
    return all;
  };
  const auto before = companies(0), after = companies(1);
  int64_t kept = 0;
  for (const auto& company : before) kept += company.size() > 1 && after.contains(company) ? 1 : 0;
  EXPECT_LT(kept, rows.size() / 4);
}

// Lengths as chats have them, below and around a row.
TEST(PackedRows, FewPositionsAreLeftEmpty) {
  for (const auto& [median, spread] : {std::pair(150.0, 0.7), std::pair(60.0, 1.0), std::pair(200.0, 0.6)}) {
    const PackedRows rows = rows_of(some_lengths(4000, median, spread), 512);
    const double full = static_cast<double>(rows.positions()) / static_cast<double>(rows.size() * 512);
    EXPECT_GE(full, 0.97) << median;
  }
}

// A search through all rows would take minutes.
TEST(PackedRows, ManyArePackedInTheTimeOfReadingThem) {
  const PackedRows rows = rows_of(some_lengths(200'000, 30, 0.7), 256);
  EXPECT_EQ(rows.conversations(), 200'000);
  EXPECT_GE(static_cast<double>(rows.positions()), 0.99 * 256 * static_cast<double>(rows.size()));
}

TEST(PackedRows, WithoutPackingEachHasARowOfItsOwn) {
  const PackedRows rows = rows_of({5, 9, 6, 6, 12}, 16, /*packs=*/false);
  EXPECT_EQ(rows.size(), 5);
  EXPECT_EQ(segments_of(rows, 0).size(), 5);
  for (int64_t turn = 0; turn < 5; ++turn) EXPECT_EQ(rows.row_in_turn(2, turn).size(), 1);
}

// Turns of 2 and 3 tokens: they end behind the tokens 2, 5, 7, 10, ...
TEST(PackedRows, ALongOneIsCutBehindTheLastTurnThatFits) {
  const auto positions_in = [](int64_t length, int64_t T) {
    const PackedRows rows = rows_of({length}, T);
    EXPECT_EQ(rows.cut(), length > T + 1 ? 1 : 0);
    return rows.row(0).at(0).length;
  };
  EXPECT_EQ(positions_in(12, 11), 11) << "it fits";
  EXPECT_EQ(positions_in(12, 10), 9) << "10 tokens end a turn";
  EXPECT_EQ(positions_in(12, 9), 9);
  EXPECT_EQ(positions_in(12, 8), 6) << "9 tokens do not end one, but 7 do";
  EXPECT_EQ(positions_in(12, 3), 3) << "a turn without anything to learn is no place to cut";
}

TEST(PackedRows, WhatLearnsNothingIsLeftOut) {
  test::MarkedIds ids = test::conversations({8, 8, 2}, kVocab);  // the last one has a question alone
  for (size_t i = 8; i < 16; ++i) ids.marks[i] &= static_cast<uint8_t>(~TokenMark::kLearned);
  const PackedRows rows(ids.tokens(kVocab), 16, true, 1);
  EXPECT_EQ(rows.conversations(), 1);
  EXPECT_EQ(rows.left_out(), 2);
  EXPECT_EQ(rows.learned(), 4) << "tokens 2 to 4, and 7";
  for (uint8_t& mark : ids.marks) mark &= static_cast<uint8_t>(~TokenMark::kLearned);
  EXPECT_ERROR(PackedRows(ids.tokens(kVocab), 16, true, 1), ExitCode::data,
               "the conversations have nothing to learn within sequences of 16 tokens (3 were left out)");
}

TEST(PackedRows, RowsAreWrittenWithTheirPadding) {
  const test::MarkedIds ids = test::conversations({6, 4}, kVocab);
  const Tokens tokens = ids.tokens(kVocab);
  const PackedRows rows(tokens, 10, true, 1);
  ASSERT_EQ(rows.size(), 1);
  std::vector<int64_t> inputs(10, 99), targets(10, 99), starts(10, 99);
  write_rows(tokens, {rows.row(0)}, 10, {inputs.data(), targets.data(), starts.data()});
  const auto& id = ids.ids;
  EXPECT_EQ(inputs, (std::vector<int64_t>{id[0], id[1], id[2], id[3], id[4], id[6], id[7], id[8], 0, 0}));
  EXPECT_EQ(targets, (std::vector<int64_t>{-1, id[2], id[3], id[4], -1, -1, id[8], id[9], -1, -1}));
  EXPECT_EQ(starts, (std::vector<int64_t>{0, 0, 0, 0, 0, 5, 5, 5, 8, 8}));
  const Tokens learned = learned_ids(tokens, rows.row(0));
  ASSERT_EQ(learned.size(), learned_in(rows.row(0)));
  EXPECT_EQ(learned[0], id[2]);
  EXPECT_EQ(learned[4], id[9]);
}

}  // namespace
}  // namespace gpt::data
