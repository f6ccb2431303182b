#include "gpt/core/cpu_topology.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "core/scratch_folder.h"

namespace gpt {
namespace {

std::vector<int64_t> ids_of(const std::vector<Processor>& processors) {
  std::vector<int64_t> ids;
  for (const Processor& processor : processors) ids.push_back(processor.id);
  return ids;
}

// Two nodes of two cores with two hyper-threads each, numbered as Linux does on such a machine.
std::vector<Processor> two_nodes(const ScratchFolder& root, const std::string& list = "core_cpus_list") {
  for (int64_t id = 0; id < 8; ++id)
    (void)root.file(fmt::format("sys/devices/system/cpu/cpu{}/topology/{}", id, list),
                    fmt::format("{},{}\n", id % 4, id % 4 + 4));
  (void)root.file("sys/devices/system/node/online", "0-1\n");
  (void)root.file("sys/devices/system/node/node0/cpulist", "0-1,4-5\n");
  (void)root.file("sys/devices/system/node/node1/cpulist", "2-3,6-7\n");
  return describe_processors({0, 1, 2, 3, 4, 5, 6, 7}, root.path());
}

TEST(CpuTopology, CoresAndNodesAreThoseOfTheSystem) {
  const ScratchFolder root, older;
  const std::vector<Processor> processors = two_nodes(root);
  const std::vector<Processor> expected = {{0, 0, 0}, {4, 0, 0}, {1, 1, 0}, {5, 1, 0},
                                           {2, 2, 1}, {6, 2, 1}, {3, 3, 1}, {7, 3, 1}};
  EXPECT_EQ(processors, expected);
  EXPECT_EQ(count_cores(processors), 4);
  EXPECT_EQ(count_nodes(processors), 2);
  EXPECT_EQ(two_nodes(older, "thread_siblings_list"), expected);
  const std::vector<Processor> few = describe_processors({5, 1}, root.path());
  EXPECT_EQ(count_cores(few), 1) << "two hyper-threads of one core";
}

TEST(CpuTopology, WhatTheSystemDoesNotSayIsACoreInTheOneNode) {
  const ScratchFolder root;
  EXPECT_EQ(describe_processors({3, 1}, root.path()), (std::vector<Processor>{{1, 1, 0}, {3, 3, 0}}));
  (void)root.file("sys/devices/system/cpu/cpu1/topology/core_cpus_list", "nonsense");
  EXPECT_EQ(describe_processors({1}, root.path()), (std::vector<Processor>{{1, 1, 0}}));
}

TEST(CpuTopology, ProcessesShareNodesEvenlyOrNotAtAll) {
  const ScratchFolder root;
  const std::vector<Processor> all = two_nodes(root);
  const std::vector<int64_t> first = {0, 4, 1, 5}, second = {2, 6, 3, 7};
  EXPECT_EQ(ids_of(nodes_of_process(all, 0, 2)), first);
  EXPECT_EQ(ids_of(nodes_of_process(all, 1, 2)), second);
  for (int64_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(ids_of(nodes_of_process(all, rank, 4)), rank < 2 ? first : second) << rank;
  EXPECT_EQ(nodes_of_process(all, 0, 1), all);
  EXPECT_EQ(nodes_of_process(all, 2, 3), all) << "three processes do not divide two nodes";
}

TEST(CpuTopology, AThreadRunsWhereItIsToldTo) {
  const int64_t id = processors_of_mask().back();
  std::vector<int64_t> mask;
  std::thread([&] {
    EXPECT_TRUE(run_on({{id, id, 0}}));
    mask = processors_of_mask();
  }).join();
  EXPECT_EQ(mask, std::vector<int64_t>{id});
  bool is_allowed = true;
  std::thread([&] { is_allowed = run_on({{1 << 15, 0, 0}}); }).join();
  EXPECT_FALSE(is_allowed) << "this machine has no such processor";
}

}  // namespace
}  // namespace gpt
