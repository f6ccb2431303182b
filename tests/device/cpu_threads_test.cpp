#include "gpt/device/cpu_threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "gpt/core/process.h"

namespace gpt {
namespace {

// LLVM's OpenMP tells how many milliseconds its threads spin; libgomp has no such function.
using Milliseconds = int (*)();
Milliseconds spin_time() { return reinterpret_cast<Milliseconds>(dlsym(RTLD_DEFAULT, "kmp_get_blocktime")); }

// In a process of its own, which has computed nothing: the runtime reads its settings once.
TEST(CpuThreadsDeathTest, SpinAMillisecondUnlessTheUserSaysOtherwise) {
  if (!spin_time()) GTEST_SKIP() << "this build uses LibTorch's libgomp";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto exit_with_spin_time = [] {
    std::exit(process::run(0, nullptr, [](int, char**) { return spin_time()(); }));
  };
  const char* names[] = {"OMP_WAIT_POLICY", "KMP_BLOCKTIME"};
  for (const char* name : names) unsetenv(name);
  EXPECT_EXIT(exit_with_spin_time(), testing::ExitedWithCode(1), "");
  setenv("KMP_BLOCKTIME", "7", 1);
  EXPECT_EXIT(exit_with_spin_time(), testing::ExitedWithCode(7), "");
  unsetenv("KMP_BLOCKTIME");
  setenv("OMP_WAIT_POLICY", "PASSIVE", 1);
  EXPECT_EXIT(exit_with_spin_time(), testing::ExitedWithCode(0), "");
  for (const char* name : names) unsetenv(name);
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
