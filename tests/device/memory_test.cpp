#include "gpt/device/memory.h"

#include <ATen/ops/empty.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpt/core/process_memory.h"
#include "gpt/device/host.h"
#include "support/cpu_memory.h"

namespace gpt::device {
namespace {

bool are_expandable() { return c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments(); }

TEST(ExpandableSegments, AreAsTheRunAsksUnlessTheUsersVariableIsSet) {
  unsetenv("PYTORCH_CUDA_ALLOC_CONF");
  unsetenv("PYTORCH_ALLOC_CONF");
  use_expandable_segments(true);
  EXPECT_TRUE(are_expandable());
  use_expandable_segments(false);
  EXPECT_FALSE(are_expandable());
  for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    setenv(name, "max_split_size_mb:64", 1);
    EXPECT_TRUE(has_allocator_variable());
    use_expandable_segments(true);
    EXPECT_FALSE(are_expandable());
    unsetenv(name);
  }
  EXPECT_FALSE(has_allocator_variable());
}

TEST(ExpandableSegments, AreNotAskedForAgainWhereTheSystemRefusedThem) {
  const auto gives_up_once = [] {
    unsetenv("PYTORCH_CUDA_ALLOC_CONF");
    unsetenv("PYTORCH_ALLOC_CONF");
    use_expandable_segments(true);
    const bool gave_up = give_up_expandable_segments(), again = give_up_expandable_segments();
    use_expandable_segments(true);
    return gave_up && !again && !are_expandable();
  };
  // In a process of its own, because it is for good.
  EXPECT_EXIT(_exit(gives_up_once() ? 0 : 1), testing::ExitedWithCode(0), "");
}

class CpuMemoryLimit : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::cpu_memory_is_counted()) GTEST_SKIP() << "no address range";
  }
  void TearDown() override { configure_memory({}, at::kCPU); }
};

TEST_F(CpuMemoryLimit, AFractionIsOfTheMachineAndTheProgramCounts) {
  TrainingConfig training;
  release_unused_memory(at::kCPU);
  // Half of what the process has already: the range cannot grow at all.
  training.allocator.memory_fraction = 0.5 * static_cast<double>(process_memory::bytes()) / host::memory_bytes();
  configure_memory(training, at::kCPU);
  EXPECT_THROW((void)at::empty({int64_t{256} << 20}, at::kByte), c10::OutOfMemoryError);
  training.execution.memory_check = false;  // the share is not the kernel's
  configure_memory(training, at::kCPU);
  EXPECT_THROW((void)at::empty({int64_t{256} << 20}, at::kByte), c10::OutOfMemoryError);
  training.allocator.memory_fraction = 1;
  configure_memory(training, at::kCPU);
  EXPECT_NO_THROW((void)at::empty({int64_t{256} << 20}, at::kByte));
}

}  // namespace
}  // namespace gpt::device
