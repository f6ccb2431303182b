#include "gpt/core/processors.h"

#include <gtest/gtest.h>

#include <sched.h>
#include <chrono>
#include <thread>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "core/scratch_folder.h"

namespace gpt {
namespace {

// A quota below one processor, so that the answer does not depend on how many this machine has.
constexpr const char* kHalf = "50000 100000\n";

TEST(UsableProcessors, WithoutAQuotaAreThoseToRunOn) {
  const ScratchFolder root;
  cpu_set_t here;
  ASSERT_EQ(sched_getaffinity(0, sizeof here, &here), 0);
  EXPECT_EQ(usable_processors(root.path()), CPU_COUNT(&here));
  (void)root.file("proc/self/cgroup", "0::/job\n");
  (void)root.file("sys/fs/cgroup/job/cpu.max", "max 100000\n");
  EXPECT_EQ(usable_processors(root.path()), CPU_COUNT(&here));
  (void)root.file("sys/fs/cgroup/job/cpu.max", "100000000 100000\n");  // a thousand processors
  EXPECT_EQ(usable_processors(root.path()), CPU_COUNT(&here));
}

// In a process of its own: only the first answer looks.
TEST(UsableProcessorsDeathTest, FollowTheMaskOfTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto exit_with_answer = [] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) std::exit(100);
    std::exit(static_cast<int>(usable_processors()));
  };
  EXPECT_EXIT(exit_with_answer(), testing::ExitedWithCode(1), "");
}

TEST(UsableProcessors, AQuotaIsRoundedUp) {
  const ScratchFolder root;
  (void)root.file("proc/self/cgroup", "0::/job\n");
  (void)root.file("sys/fs/cgroup/job/cpu.max", kHalf);
  EXPECT_EQ(usable_processors(root.path()), 1);
  (void)root.file("sys/fs/cgroup/job/cpu.max", "110000 100000\n");
  EXPECT_EQ(usable_processors(root.path()), std::min<int64_t>(2, usable_processors()));
}

TEST(UsableProcessors, TheSmallestQuotaAroundItDecides) {
  const ScratchFolder root;
  (void)root.file("proc/self/cgroup", "0::/outer/inner\n");
  (void)root.file("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  (void)root.file("sys/fs/cgroup/outer/cpu.max", kHalf);
  EXPECT_EQ(usable_processors(root.path()), 1);
}

// A container sees its own group as the root of the hierarchy, under another name than the kernel's.
TEST(UsableProcessors, InAContainerTheRootHasTheQuota) {
  const ScratchFolder root;
  (void)root.file("proc/self/cgroup", "0::/docker/0123456789ab\n");
  (void)root.file("sys/fs/cgroup/cpu.max", kHalf);
  EXPECT_EQ(usable_processors(root.path()), 1);
}

TEST(UsableProcessors, Version1HasQuotaAndPeriodInTwoFiles) {
  const ScratchFolder root;
  (void)root.file("proc/self/cgroup", "5:memory:/job\n4:cpu,cpuacct:/job\n0::/\n");
  const std::string folder = "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_";
  (void)root.file(folder + "period_us", "100000\n");
  (void)root.file(folder + "quota_us", "-1\n");
  EXPECT_EQ(usable_processors(root.path()), usable_processors());
  (void)root.file(folder + "quota_us", "20000\n");
  EXPECT_EQ(usable_processors(root.path()), 1);
}

TEST(UsableCores, CountHyperThreadsOnce) {
  const ScratchFolder root;
  EXPECT_LE(usable_cores(root.path()), usable_processors(root.path()));
  EXPECT_EQ(usable_cores(root.path()), count_cores(describe_processors(processors_of_mask())));
  (void)root.file("proc/self/cgroup", "0::/job\n");
  (void)root.file("sys/fs/cgroup/job/cpu.max", kHalf);
  EXPECT_EQ(usable_cores(root.path()), 1);
}

TEST(ProcessorSeconds, CountThreadsThatComputeAndNotThoseThatWait) {
  constexpr double kLong = 0.05;
  const double before = processor_seconds();
  std::thread([before] {
    while (processor_seconds() < before + kLong) {}
  }).join();
  const double computed = processor_seconds();
  EXPECT_GE(computed, before + kLong);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(processor_seconds(), computed + 0.1);
}

}  // namespace
}  // namespace gpt
