// When a run ends by itself, before the kernel ends it.
#include "gpt/train/memory_watch.h"

#include <gtest/gtest.h>

namespace gpt::train {
namespace {

constexpr int64_t kMB = 1'000'000;

bool is_running_out(int64_t free_before, int64_t own_before, int64_t free_now, int64_t own_now) {
  return MemoryWatch::is_running_out({free_before * kMB, own_before * kMB}, {free_now * kMB, own_now * kMB});
}

TEST(MemoryWatch, ARunMayTakeAllButALittle) {
  EXPECT_FALSE(is_running_out(1000, 500, 20, 1480));
  EXPECT_FALSE(is_running_out(20, 1480, 20, 1480)) << "for as long as it likes";
  EXPECT_TRUE(is_running_out(20, 1480, 3, 1480));
}

TEST(MemoryWatch, WhatOthersTakeCountsAsLongAsItLasts) {
  EXPECT_FALSE(is_running_out(1000, 500, 700, 500)) << "two more such looks leave 100 MB";
  EXPECT_TRUE(is_running_out(1000, 500, 600, 500));
  EXPECT_FALSE(is_running_out(1000, 500, 600, 900)) << "the run itself took it";
  EXPECT_FALSE(is_running_out(300, 500, 1000, 500)) << "others gave it back";
}

TEST(MemoryWatch, LooksOnlyWhereItIsAskedTo) {
  EXPECT_FALSE(MemoryWatch(false).is_running_out());
  EXPECT_FALSE(MemoryWatch(true).is_running_out());
}

TEST(MemoryWatch, AShortageMayPassWhileTheRunWaits) {
  int64_t seconds = 0, asked = 0;
  const MemoryWatch::Senses senses{.look = [&] { return MemoryWatch::Look{(seconds < 4 ? 2 : 500) * kMB, 500 * kMB}; },
                                   .wait = [&](std::chrono::milliseconds time) { seconds += time.count() / 1000; }};
  MemoryWatch watch(/*watches=*/false, senses);
  const auto is_any = [&asked](bool own) { return ++asked, own; };
  EXPECT_TRUE(watch.wait_until_over(is_any));
  EXPECT_EQ(seconds, 4);
  EXPECT_EQ(asked, 4) << "the other processes ask as often";
  seconds = -100;
  EXPECT_FALSE(watch.wait_until_over(is_any));
  EXPECT_EQ(seconds, -100 + MemoryWatch::kMostSeconds);
  seconds = 4;
  EXPECT_FALSE(watch.wait_until_over([](bool) { return true; })) << "another process has none";
}

}  // namespace
}  // namespace gpt::train
