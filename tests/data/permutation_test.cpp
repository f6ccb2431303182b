#include "gpt/data/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace gpt::data {
namespace {

void expect_bijection(uint64_t size, uint64_t key) {
  const Permutation order(size, key);
  std::vector<bool> seen(size);
  for (uint64_t i = 0; i < size; ++i) {
    const uint64_t j = order(i);
    ASSERT_LT(j, size) << "size " << size;
    ASSERT_FALSE(seen[j]) << "size " << size << ": " << j << " twice";
    seen[j] = true;
  }
}

TEST(Permutation, IsABijectionForEverySize) {
  for (uint64_t size = 1; size <= 500; ++size) expect_bijection(size, 1000 + size);
  for (const uint64_t size : {4095u, 4096u, 4097u, 65537u, 1000003u}) expect_bijection(size, size);
}

// The order is part of what a checkpoint means: these values (from an independent implementation in Python) may never change.
TEST(Permutation, OrderIsPinned) {
  const auto order = [](uint64_t size, uint64_t key, uint64_t count) {
    const Permutation permutation(size, key);
    std::vector<uint64_t> values;
    for (uint64_t i = 0; i < count; ++i) values.push_back(permutation(i));
    return values;
  };
  EXPECT_EQ(order(10, 0, 10), (std::vector<uint64_t>{7, 5, 8, 0, 9, 6, 4, 3, 1, 2}));
  EXPECT_EQ(order(1000003, 1337, 10),
            (std::vector<uint64_t>{121354, 253284, 269501, 606507, 103411, 345118, 171561, 924792, 241757, 927327}));
  EXPECT_EQ(order(UINT64_MAX, 42, 4), (std::vector<uint64_t>{14663688896760530318u, 13780117402285786598u,
                                                             16498486115186455948u, 12266417197936275836u}));
}

// Over many keys, every index lands on every place equally often: chi-square with (n-1)^2 degrees of freedom, its
// normal approximation at 5 standard deviations. Keys are fixed, so the test always gives the same answer.
TEST(Permutation, IsUniformOverKeys) {
  for (const uint64_t n : {3u, 5u, 7u, 16u, 33u}) {
    const int keys = 50000;
    std::vector<double> counts(n * n);
    for (int key = 0; key < keys; ++key) {
      const Permutation order(n, key);
      for (uint64_t i = 0; i < n; ++i) ++counts[i * n + order(i)];
    }
    const double expected = static_cast<double>(keys) / n;
    double chi_square = 0;
    for (const double count : counts) chi_square += (count - expected) * (count - expected) / expected;
    const double freedom = static_cast<double>((n - 1) * (n - 1));
    EXPECT_NEAR(chi_square, freedom, 5 * std::sqrt(2 * freedom)) << "n = " << n;
  }
}

// Neighbours stay neighbours no more often than in a random order (about 2 of them on average, Poisson).
TEST(Permutation, SeparatesNeighbours) {
  const Permutation order(100000, 7);
  int neighbours = 0;
  for (uint64_t i = 1; i < order.size(); ++i) {
    const auto distance = static_cast<int64_t>(order(i)) - static_cast<int64_t>(order(i - 1));
    neighbours += distance == 1 || distance == -1;
  }
  EXPECT_LE(neighbours, 12);
}

}  // namespace
}  // namespace gpt::data
