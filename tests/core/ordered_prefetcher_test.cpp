#include "gpt/core/ordered_prefetcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>

namespace gpt {
namespace {

// Later items are quicker to build, so that threads overtake each other.
int64_t uneven(int64_t i) {
  std::this_thread::sleep_for(std::chrono::microseconds(i % 4 == 0 ? 300 : 0));
  return i * i;
}

TEST(OrderedPrefetcher, KeepsTheOrder) {
  for (const int64_t threads : {1, 2, 5}) {
    for (const int64_t depth : {1, 3, 16}) {
      OrderedPrefetcher<int64_t> prefetcher(threads, depth, 200, uneven);
      for (int64_t i = 0; i < 200; ++i) ASSERT_EQ(prefetcher.next(), i * i) << threads << " threads, depth " << depth;
    }
  }
}

TEST(OrderedPrefetcher, BuildsNoFurtherAheadThanItsDepth) {
  std::atomic<int64_t> built = 0;
  {
    OrderedPrefetcher<int64_t> prefetcher(4, 6, 1000, [&](int64_t i) { return ++built, i; });
    for (int64_t taken = 1; taken <= 20; ++taken) {
      prefetcher.next();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_LE(built, taken + 6);
    }
  }
  EXPECT_LE(built, 26);
}

TEST(OrderedPrefetcher, BuildsNoMoreThanItsCount) {
  std::atomic<int64_t> built = 0;
  OrderedPrefetcher<int64_t> prefetcher(3, 8, 5, [&](int64_t i) { return ++built, i; });
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(prefetcher.next(), i);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(built, 5);
}

TEST(OrderedPrefetcher, AFaultComesOutInItsPlace) {
  OrderedPrefetcher<int64_t> prefetcher(3, 4, 10, [](int64_t i) {
    if (i == 2) throw std::runtime_error("item 2");
    return i;
  });
  EXPECT_EQ(prefetcher.next(), 0);
  EXPECT_EQ(prefetcher.next(), 1);
  EXPECT_THROW(prefetcher.next(), std::runtime_error);
  EXPECT_EQ(prefetcher.next(), 3);
}

TEST(OrderedPrefetcher, MovesItems) {
  OrderedPrefetcher<std::unique_ptr<int64_t>> prefetcher(2, 2, 3,
                                                         [](int64_t i) { return std::make_unique<int64_t>(i); });
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(*prefetcher.next(), i);
}

}  // namespace
}  // namespace gpt
