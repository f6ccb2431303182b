#include "gpt/device/host.h"

#include <gtest/gtest.h>

#include <string>

#include "core/scratch_folder.h"

namespace gpt::host {
namespace {

constexpr int64_t kMegabyte = 1'000'000;

// The files of a group of version 2.
void write_group(const ScratchFolder& root, const std::string& group, const std::string& limit, int64_t used,
                 int64_t of_files, const std::string& swap_limit = "max", int64_t swap_used = 0) {
  const std::string folder = "sys/fs/cgroup/" + group;
  (void)root.file(folder + "memory.max", limit + "\n");
  (void)root.file(folder + "memory.current", std::to_string(used) + "\n");
  (void)root.file(folder + "memory.stat", "anon 123\ninactive_file " + std::to_string(of_files / 2) + "\nactive_file " +
                                              std::to_string(of_files - of_files / 2) + "\nslab_reclaimable 0\n");
  (void)root.file(folder + "memory.swap.max", swap_limit + "\n");
  (void)root.file(folder + "memory.swap.current", std::to_string(swap_used) + "\n");
}

TEST(GroupMemory, WithoutALimitEverythingIsLeft) {
  const ScratchFolder root;
  EXPECT_EQ(group_memory(0, root.path()).free, kUnlimited);
  (void)root.file("proc/self/cgroup", "0::/run\n");
  write_group(root, "run/", "max", 5 * kMegabyte, 0);
  const GroupMemory memory = group_memory(kMegabyte, root.path());
  EXPECT_EQ(memory.limit, kUnlimited);
  EXPECT_EQ(memory.free, kUnlimited);
  EXPECT_EQ(memory.growable, kUnlimited);
}

TEST(GroupMemory, PagesOfFilesAreFree) {
  const ScratchFolder root;
  (void)root.file("proc/self/cgroup", "0::/run\n");
  write_group(root, "run/", std::to_string(100 * kMegabyte), 90 * kMegabyte, /*of_files=*/60 * kMegabyte);
  const GroupMemory memory = group_memory(0, root.path());
  EXPECT_EQ(memory.limit, 100 * kMegabyte);
  EXPECT_EQ(memory.free, 70 * kMegabyte);
  EXPECT_EQ(memory.growable, 70 * kMegabyte);
}

TEST(GroupMemory, TheGroupThatLeavesTheLeastDecides) {
  const ScratchFolder root;
  (void)root.file("proc/self/cgroup", "0::/outer/inner\n");
  write_group(root, "outer/", std::to_string(200 * kMegabyte), 190 * kMegabyte, 0);
  write_group(root, "outer/inner/", std::to_string(100 * kMegabyte), 10 * kMegabyte, 0);
  EXPECT_EQ(group_memory(0, root.path()).limit, 100 * kMegabyte);
  EXPECT_EQ(group_memory(0, root.path()).free, 10 * kMegabyte);
}

TEST(GroupMemory, SwapThatTheGroupMayUseIsRoomToGrow) {
  const ScratchFolder root;
  (void)root.file("proc/self/cgroup", "0::/run\n");
  const std::string limit = std::to_string(100 * kMegabyte);
  write_group(root, "run/", limit, 90 * kMegabyte, 0, std::to_string(50 * kMegabyte), 20 * kMegabyte);
  EXPECT_EQ(group_memory(500 * kMegabyte, root.path()).free, 10 * kMegabyte);
  EXPECT_EQ(group_memory(500 * kMegabyte, root.path()).growable, 40 * kMegabyte);
  EXPECT_EQ(group_memory(5 * kMegabyte, root.path()).growable, 15 * kMegabyte);
  write_group(root, "run/", limit, 90 * kMegabyte, 0, "0");
  EXPECT_EQ(group_memory(500 * kMegabyte, root.path()).growable, 10 * kMegabyte);
}

TEST(GroupMemory, Version1WritesALargeNumberWhereThereIsNoLimit) {
  const ScratchFolder root;
  (void)root.file("proc/self/cgroup", "4:memory:/run\n");
  const std::string folder = "sys/fs/cgroup/memory/run/memory.", none = "9223372036854771712\n";
  (void)root.file(folder + "limit_in_bytes", none);
  (void)root.file(folder + "memsw.limit_in_bytes", none);
  (void)root.file(folder + "usage_in_bytes", std::to_string(3000 * kMegabyte));
  (void)root.file(folder + "stat", "total_inactive_file " + std::to_string(2500 * kMegabyte) + "\n");
  const GroupMemory memory = group_memory(8000 * kMegabyte, root.path());
  EXPECT_EQ(memory.limit, kUnlimited);
  EXPECT_EQ(memory.growable, kUnlimited);
}

TEST(GroupMemory, Version1CountsTheSumOfMemoryAndSwap) {
  const ScratchFolder root;
  (void)root.file("proc/self/cgroup", "5:cpu:/\n4:memory:/run\n0::/\n");
  const std::string folder = "sys/fs/cgroup/memory/run/memory.";
  (void)root.file(folder + "limit_in_bytes", std::to_string(100 * kMegabyte));
  (void)root.file(folder + "usage_in_bytes", std::to_string(90 * kMegabyte));
  (void)root.file(folder + "stat", "inactive_file 7\ntotal_inactive_file " + std::to_string(20 * kMegabyte) +
                                       "\ntotal_active_file " + std::to_string(10 * kMegabyte) + "\n");
  EXPECT_EQ(group_memory(0, root.path()).free, 40 * kMegabyte);
  EXPECT_EQ(group_memory(25 * kMegabyte, root.path()).growable, 65 * kMegabyte);
  (void)root.file(folder + "memsw.limit_in_bytes", std::to_string(110 * kMegabyte));
  (void)root.file(folder + "memsw.usage_in_bytes", std::to_string(95 * kMegabyte));
  EXPECT_EQ(group_memory(25 * kMegabyte, root.path()).growable, 45 * kMegabyte);
}

TEST(HostMemory, WhatCanGrowIsAtLeastWhatIsFree) {
  EXPECT_GT(free_memory_bytes(), 0);
  // Another program may take some between the two.
  EXPECT_GT(static_cast<double>(growable_memory_bytes()), 0.5 * static_cast<double>(free_memory_bytes()));
}

}  // namespace
}  // namespace gpt::host
