#include "gpt/device/cpu_allocator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gpt/core/process_memory.h"

namespace gpt::device {
namespace {

constexpr int64_t kMegabyte = 1 << 20;

at::Tensor block(int64_t bytes) { return at::empty({bytes}, at::kByte); }

class CpuAllocator : public testing::Test {
 protected:
  void SetUp() override {
    use_cpu_allocator();
    if (cpu_memory().extent == 0 && (block(kMegabyte), cpu_memory().extent == 0)) GTEST_SKIP() << "no address range";
    before_ = cpu_memory().in_use;
    release_cpu_memory();  // so that the extent ends with the last block
    gaps_ = cpu_memory().extent - before_;
  }
  void TearDown() override { EXPECT_EQ(cpu_memory().in_use, before_); }
  int64_t before_ = 0;
  int64_t gaps_ = 0;  // bytes between the tensors of other tests: a larger block lies beyond them
};

TEST_F(CpuAllocator, CountsLargeTensors) {
  reset_cpu_memory_peak();
  {
    const at::Tensor a = block(3 * kMegabyte), small = block(1000);
    EXPECT_EQ(cpu_memory().in_use, before_ + 3 * kMegabyte);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data_ptr()) % 64, 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(small.data_ptr()) % 64, 0);
  }
  EXPECT_EQ(cpu_memory().in_use, before_);
  EXPECT_EQ(cpu_memory().peak, before_ + 3 * kMegabyte);
  EXPECT_GE(cpu_memory().extent, 3 * kMegabyte);
}

TEST_F(CpuAllocator, FreeNeighboursBecomeOneGap) {
  const int64_t unit = gaps_ + kMegabyte;
  at::Tensor a = block(2 * unit), b = block(unit), c = block(3 * unit);
  const at::Tensor last = block(unit);  // keeps the gap from ending at the top
  const void* const begin = a.data_ptr();
  // In every order: after, before, and between two gaps.
  b.reset(), c.reset(), a.reset();
  const at::Tensor whole = block(6 * unit);
  EXPECT_EQ(whole.data_ptr(), begin);
}

TEST_F(CpuAllocator, TheSmallestGapThatFitsIsTaken) {
  const int64_t unit = gaps_ + kMegabyte;
  at::Tensor large = block(5 * unit);
  const at::Tensor wall = block(unit);
  at::Tensor small = block(2 * unit);
  const at::Tensor last = block(unit);
  const void* const place = small.data_ptr();
  large.reset(), small.reset();
  const at::Tensor again = block(2 * unit);
  EXPECT_EQ(again.data_ptr(), place);
}

TEST_F(CpuAllocator, RepeatingAStepTakesNoMore) {
  const auto step = [] {
    std::vector<at::Tensor> kept;
    for (int64_t i = 1; i <= 20; ++i) {
      kept.push_back(block(i * 100'000));
      (void)block(i * 300'000);  // a buffer that lives for a moment
    }
    while (!kept.empty()) {
      kept.pop_back();
      (void)block(1'234'567);
    }
  };
  step();
  const int64_t extent = cpu_memory().extent;
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(cpu_memory().extent, extent);
}

// Every block keeps what was written into it, whatever its neighbours do.
void write_and_check(int seed) {
  std::mt19937 random(seed);
  std::vector<std::pair<at::Tensor, uint8_t>> blocks;
  for (int i = 0; i < 400; ++i) {
    if (blocks.size() < 5 || random() % 2 == 0) {
      const auto value = static_cast<uint8_t>(random());
      blocks.emplace_back(block(64 * 1024 + static_cast<int64_t>(random() % 500'000)), value);
      std::memset(blocks.back().first.data_ptr(), value, blocks.back().first.nbytes());
    } else {
      const size_t which = random() % blocks.size();
      const auto& [tensor, value] = blocks[which];
      const auto* bytes = tensor.data_ptr<uint8_t>();
      ASSERT_TRUE(
          std::all_of(bytes, bytes + tensor.numel(), [&, value = value](uint8_t byte) { return byte == value; }));
      blocks.erase(blocks.begin() + static_cast<int64_t>(which));
    }
  }
}

TEST_F(CpuAllocator, BlocksNeverOverlap) {
  std::vector<std::thread> threads;
  for (int seed = 0; seed < 4; ++seed) threads.emplace_back(write_and_check, seed);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CpuAllocator, MoreThanThereIsIsOutOfMemory) {
  EXPECT_THROW(block(int64_t{1} << 60), c10::OutOfMemoryError);
  EXPECT_EQ(block(0).numel(), 0);
}

// Bytes of the range that are in memory, as the kernel counts them.
int64_t resident() { return process_memory::bytes(); }

TEST_F(CpuAllocator, TheRangeGrowsOnlyWhereThereIsRoom) {
  // The range grows in steps, whose ends depend on where it lies: by 5 to 8 MB here, beside up to 2 MB of before.
  int64_t room = gaps_ + 8 * kMegabyte, questions = 0;
  limit_cpu_memory([&] { return ++questions, room; });
  EXPECT_NO_THROW(block(gaps_ + 5 * kMegabyte));
  EXPECT_GT(questions, 0);
  room = 4 * kMegabyte;
  EXPECT_THROW(block(gaps_ + 16 * kMegabyte), c10::OutOfMemoryError);
  EXPECT_EQ(cpu_memory().in_use, before_);
  room = 200 * kMegabyte;
  EXPECT_NO_THROW(block(gaps_ + 16 * kMegabyte));
  questions = 0;  // what it has grown by, it need not ask for again
  EXPECT_NO_THROW(block(gaps_ + 16 * kMegabyte));
  EXPECT_EQ(questions, 0);
  limit_cpu_memory({});
  room = 0;
  EXPECT_NO_THROW(block(gaps_ + 300 * kMegabyte));
  limit_cpu_memory(growable_by_tensors);
}

TEST_F(CpuAllocator, TheRefusalSaysHowMuchWasAskedFor) {
  limit_cpu_memory([] { return 0; });
  const int64_t size = gaps_ + 100 * kMegabyte;
  try {
    (void)block(size);
    ADD_FAILURE() << "there was room";
  } catch (const c10::OutOfMemoryError& error) {
    const std::string expected = "not enough memory for a tensor of " + std::to_string(size) + " bytes";
    EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
  }
  limit_cpu_memory(growable_by_tensors);
}

TEST_F(CpuAllocator, WhatIsReleasedLeavesTheProcessAndWhatIsInUseStays) {
  at::Tensor gap = at::ones({200 * kMegabyte}, at::kByte);
  const at::Tensor kept = at::ones({20 * kMegabyte}, at::kByte);
  at::Tensor top = at::ones({200 * kMegabyte}, at::kByte);
  gap.reset(), top.reset();
  const int64_t with_all = resident();
  release_cpu_memory();
  EXPECT_LT(resident(), with_all - 350 * kMegabyte);
  EXPECT_EQ(kept.sum().item<int64_t>(), kept.numel());
  EXPECT_EQ(at::ones({200 * kMegabyte}, at::kByte).sum().item<int64_t>(), 200 * kMegabyte);
}

}  // namespace
}  // namespace gpt::device
