#include "gpt/train/save_mode.h"

#include <gtest/gtest.h>

#include <string>

#include "support/captured_log.h"

namespace gpt::train {
namespace {

using enum AsyncCheckpoint;

constexpr uint64_t kLarge = 200'000'000, kSmall = 1'000'000, kTooLarge = uint64_t{1} << 60;

TEST(SaveMode, WithProcessorsToSpareSizeAndMemoryDecide) {
  EXPECT_TRUE(SaveMode(automatic, /*is_busy=*/false).is_background(kLarge));
  EXPECT_FALSE(SaveMode(automatic, false).is_background(kSmall));
  EXPECT_FALSE(SaveMode(automatic, false).is_background(kTooLarge));
  EXPECT_TRUE(SaveMode(on, false).is_background(kSmall));
  EXPECT_FALSE(SaveMode(off, false).is_background(kLarge));
  test::CapturedLog log;
  EXPECT_FALSE(SaveMode(on, false).is_background(kTooLarge));
  const std::string said = log.text();
  EXPECT_NE(said.find("async_checkpoint needs a copy"), std::string::npos) << said;
}

// On busy processors the first one is written at once, and tells whether the disk or the processors took the time.
TEST(SaveMode, WithBusyProcessorsTheFirstOneDecides) {
  SaveMode slow_disk(automatic, /*is_busy=*/true), fast_disk(automatic, true);
  EXPECT_FALSE(slow_disk.is_background(kLarge));
  slow_disk.measured(/*seconds=*/4, /*processor_seconds=*/1);
  EXPECT_TRUE(slow_disk.is_background(kLarge));
  EXPECT_FALSE(fast_disk.is_background(kLarge));
  test::CapturedLog log;
  fast_disk.measured(1.25, 1);
  const std::string said = log.text();
  EXPECT_NE(said.find("Training waits 1.25 s for each checkpoint"), std::string::npos) << said;
  EXPECT_FALSE(fast_disk.is_background(kLarge));
  fast_disk.measured(100, 1);
  EXPECT_FALSE(fast_disk.is_background(kLarge)) << "what was decided stays";
}

TEST(SaveMode, WhatWasAskedForIsNotMeasured) {
  SaveMode always(on, /*is_busy=*/true), never(off, true);
  EXPECT_TRUE(always.is_background(kSmall));
  always.measured(1, 1);
  EXPECT_TRUE(always.is_background(kSmall));
  EXPECT_FALSE(never.is_background(kLarge));
  never.measured(100, 1);
  EXPECT_FALSE(never.is_background(kLarge));
}

// Where another process of the same files is of another mind, all write at once.
TEST(SaveMode, ProcessesThatWriteTogetherDecideTogether) {
  const auto another_says_no = [](bool) { return false; };
  EXPECT_FALSE(SaveMode(automatic, /*is_busy=*/false, another_says_no).is_background(kLarge));
  SaveMode slow_disk(automatic, /*is_busy=*/true, [asked = 0](bool own) mutable { return own && ++asked < 3; });
  EXPECT_FALSE(slow_disk.is_background(kLarge));  // there is room, and all are busy
  slow_disk.measured(/*seconds=*/4, /*processor_seconds=*/1);
  EXPECT_FALSE(slow_disk.is_background(kLarge)) << "another one found its own faster";
}

}  // namespace
}  // namespace gpt::train
