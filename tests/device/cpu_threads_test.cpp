#include "gpt/device/cpu_threads.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <thread>

namespace gpt {
namespace {

size_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

// What makes libgomp's threads sleep: more of them than processors. In a process of its own, which has computed nothing.
TEST(CpuThreadsDeathTest, ThereAreMoreThanProcessorsWhereTheseAreFew) {
  const size_t processors = std::thread::hardware_concurrency();
  if (processors < 2 || processors > 8) GTEST_SKIP() << "needs 2 to 8 processors";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto threads_with = [](int64_t count) {
    use_cpu_threads(count);
    std::exit(static_cast<int>(threads_of_this_process()));
  };
  const auto more = [=](int status) { return WIFEXITED(status) && WEXITSTATUS(status) > processors; };
  const auto few = [=](int status) { return WIFEXITED(status) && WEXITSTATUS(status) <= processors; };
  unsetenv("OMP_WAIT_POLICY");
  unsetenv("GOMP_SPINCOUNT");
  EXPECT_EXIT(threads_with(static_cast<int64_t>(processors)), more, "");
  EXPECT_EXIT(threads_with(1), few, "");
  setenv("OMP_WAIT_POLICY", "ACTIVE", 1);
  EXPECT_EXIT(threads_with(static_cast<int64_t>(processors)), few, "");
  unsetenv("OMP_WAIT_POLICY");
}

TEST(CpuThreads, AreAsManyAsAskedFor) {
  const int before = at::get_num_threads();
  use_cpu_threads(1);
  EXPECT_EQ(at::get_num_threads(), 1);
  use_cpu_threads(0);
  EXPECT_EQ(at::get_num_threads(), 1);
  at::set_num_threads(before);
}

}  // namespace
}  // namespace gpt
