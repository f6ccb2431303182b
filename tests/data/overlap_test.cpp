#include "gpt/data/overlap.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace gpt::data {
namespace {

std::vector<int32_t> noise(int64_t size, int32_t vocab_size, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(size);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<unsigned>(vocab_size));
  return ids;
}

class OverlapTest : public testing::TestWithParam<int32_t> {  // vocabulary: 16 and 32-bit ids
 protected:
  Tokens tokens(const std::vector<int32_t>& ids) const { return Tokens::from_ids(ids, GetParam()); }
};

TEST_P(OverlapTest, DifferentTextsShareNothing) {
  const Overlap overlap = find_overlap(tokens(noise(100000, GetParam(), 1)), tokens(noise(20000, GetParam(), 2)));
  EXPECT_EQ(overlap.windows, (20000 - 63) / 64);
  EXPECT_EQ(overlap.found, 0);
}

TEST_P(OverlapTest, FindsValidationAnywhereInTraining) {
  const std::vector<int32_t> all = noise(300000, GetParam(), 3);
  for (const int64_t begin : {0, 12345, 299000}) {
    const Overlap overlap = find_overlap(tokens(all), tokens(all).slice(begin, begin + 1000));
    EXPECT_EQ(overlap.windows, 14);
    EXPECT_EQ(overlap.found, 14);
    EXPECT_EQ(overlap.share(), 1);
    EXPECT_EQ(overlap.train_position - overlap.validation_position, begin);
  }
}

TEST_P(OverlapTest, TheFirstAndTheLastWindowCount) {
  const std::vector<int32_t> all = noise(1000, GetParam(), 6);
  for (const int64_t begin : {0, 936}) {
    const Overlap overlap = find_overlap(tokens(all), tokens(all).slice(begin, begin + 64));
    EXPECT_EQ(overlap.windows, 1);
    EXPECT_EQ(overlap.found, 1) << begin;
    EXPECT_EQ(overlap.train_position, begin);
  }
  const std::vector<int32_t> one(all.begin(), all.begin() + 64);
  EXPECT_EQ(find_overlap(tokens(one), tokens(one)).found, 1);
}

TEST_P(OverlapTest, ManyWindowsAreSampled) {
  const std::vector<int32_t> all = noise(200000, GetParam(), 4);
  EXPECT_EQ(find_overlap(tokens(all), tokens(all)).windows, 1024);
  EXPECT_EQ(find_overlap(tokens(all), tokens(all)).found, 1024);
  // One that is only partly contained.
  std::vector<int32_t> half = noise(100000, GetParam(), 5);
  half.insert(half.end(), all.begin(), all.begin() + 100000);
  EXPECT_NEAR(find_overlap(tokens(all), tokens(half)).share(), 0.5, 0.01);
}

TEST_P(OverlapTest, ShortTextsAndRunsOfOneId) {
  EXPECT_EQ(find_overlap(tokens(noise(63, 9, 1)), tokens(noise(1000, 9, 1))).found, 0);
  EXPECT_EQ(find_overlap(tokens(noise(1000, 9, 1)), tokens(noise(63, 9, 1))).windows, 0);
  EXPECT_EQ(find_overlap(tokens({}), tokens({})).windows, 0);
  const std::vector<int32_t> zeros(1000), ones(1000, 1);
  EXPECT_EQ(find_overlap(tokens(zeros), tokens(zeros)).share(), 1);
  EXPECT_EQ(find_overlap(tokens(zeros), tokens(ones)).found, 0);
}

// The positions are searched in blocks, on several threads, in four chains each.
TEST_P(OverlapTest, NoPositionIsLeftOut) {
  const std::vector<int32_t> all = noise((5 << 20) + 63 + 3, GetParam(), 7);
  const Tokens train = tokens(all);
  for (const int64_t edge : {0, 1 << 18, 1 << 19, 1 << 20, 2 << 20, 5 << 20}) {
    for (const int64_t begin : {edge - 64, edge - 63, edge - 1, edge, edge + 1, edge + 2}) {
      if (begin < 0 || begin + 64 > train.size()) continue;
      const Overlap overlap = find_overlap(train, train.slice(begin, begin + 64));
      ASSERT_EQ(overlap.found, 1) << begin;
      ASSERT_EQ(overlap.train_position, begin);
    }
  }
}

TEST_P(OverlapTest, WhatIsRepeatedWithoutEndIsFoundOnce) {
  std::vector<int32_t> all(3 << 20), part(200'000);
  const std::vector<int32_t> other = noise(100'000, GetParam(), 8);
  std::copy(other.begin(), other.end(), part.begin());
  const Overlap overlap = find_overlap(tokens(all), tokens(part));
  EXPECT_EQ(overlap.windows, 1024);
  EXPECT_EQ(overlap.found, 511);
}

TEST_P(OverlapTest, SaysHowFarItIsAndCanBeStopped) {
  struct Stop {};
  const Tokens train = tokens(noise(3 << 20, GetParam(), 9));
  int64_t last = 0;
  find_overlap(train, train, [&](int64_t done) {
    EXPECT_GE(done, last);
    last = done;
  });
  EXPECT_EQ(last, train.size() - 63);
  EXPECT_THROW(find_overlap(train, train, [](int64_t) { throw Stop(); }), Stop);
}

INSTANTIATE_TEST_SUITE_P(Widths, OverlapTest, testing::Values(60000, 100000));

}  // namespace
}  // namespace gpt::data
