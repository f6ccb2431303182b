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
  for (const auto& [latency, bytes_per_second] :
       {measure_sum_speed(2, at::kFloat), measure_sum_speed(3, at::kBFloat16)}) {
    EXPECT_GT(latency, 0);
    EXPECT_GT(bytes_per_second, 0);
  }
  EXPECT_EQ(at::get_num_threads(), 3);
  EXPECT_EQ(threads_of_a_new_thread(), 3);
  at::set_num_threads(before);
}

// Three processes send four messages each in a sum: 4 ms in a short one, and 40 ms of ten long ones before their bytes count.
TEST(SumSpeed, IsFittedToShortAndLongSums) {
  const SumSpeed speed = sum_speed_from(/*seconds_of_short=*/0.004, /*seconds_of_long=*/0.140, /*sums=*/10,
                                        /*bytes_sent=*/2e8, /*processes=*/3);
  EXPECT_DOUBLE_EQ(speed.latency, 0.001);
  EXPECT_DOUBLE_EQ(speed.bytes_per_second, 2e9);
  EXPECT_DOUBLE_EQ(sum_speed_from(0.5, 0.140, 10, 2e8, 3).bytes_per_second, 2e8 / 0.014) << "a pause in all short ones";
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
