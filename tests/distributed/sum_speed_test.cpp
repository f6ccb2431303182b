// How fast processes would sum is measured without a trace.
#include "gpt/distributed/sum_speed.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <thread>

#include "gpt/distributed/communicator.h"

namespace gpt::distributed {
namespace {

// Those of threads that begin later are set for the whole process.
int threads_of_a_new_thread() {
  int threads = 0;
  std::thread([&] { threads = at::get_num_threads(); }).join();
  return threads;
}

TEST(SumSpeed, LeavesTheThreadsAsTheyAre) {
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  EXPECT_GT(measure_sum_speed(2, at::kFloat), 0);
  EXPECT_GT(measure_sum_speed(3, at::kBFloat16), 0);
  EXPECT_EQ(at::get_num_threads(), 3);
  EXPECT_EQ(threads_of_a_new_thread(), 3);
  at::set_num_threads(before);
}

TEST(SumCosts, AreThoseOfAnExchangeAndOfWhatComesBack) {
  EXPECT_EQ(bytes_sent_by_sum(1000, 1), 0);
  EXPECT_EQ(bytes_sent_by_sum(1000, 2), 1000);
  EXPECT_EQ(bytes_sent_by_sum(1000, 4), 1500);
  EXPECT_EQ(memory_of_sum(1000, 500, /*is_converted=*/false, /*is_narrow=*/false), 1000);
  EXPECT_EQ(memory_of_sum(1e9, 500, false, false), 1500);
  EXPECT_EQ(memory_of_sum(1e9, 500, true, true), 2 * 1500 + 1000);
  EXPECT_EQ(memory_of_gather(1e9, 500, 3), 500);
}

}  // namespace
}  // namespace gpt::distributed
