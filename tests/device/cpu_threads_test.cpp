#include "gpt/device/cpu_threads.h"

#include <ATen/Parallel.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gpt/core/process.h"

namespace gpt::device {
namespace {

// LLVM's OpenMP tells how many milliseconds its threads spin; libgomp has no such function.
using Milliseconds = int (*)();
Milliseconds spin_time() { return reinterpret_cast<Milliseconds>(dlsym(RTLD_DEFAULT, "kmp_get_blocktime")); }

// In a process of its own, which has computed nothing: the runtime reads its settings once.
TEST(CpuThreadsDeathTest, SpinAMillisecondUnlessTheUserSaysOtherwise) {
  if (!spin_time()) GTEST_SKIP() << "this build uses LibTorch's libgomp";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto exit_with_spin_time = [] { process::run(0, nullptr, [](int, char**) { return spin_time()(); }); };
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

// With how many threads LibTorch computes after `count` were asked for, in a process of its own; 100 where a product of 16 bits is
// wrong, as it is where a team is smaller than that number.
[[noreturn]] void exit_with_threads(int64_t count) {
  use_cpu_threads(count);
  const at::Tensor a = at::ones({64, 64}, at::kBFloat16);
  const bool is_right = at::mm(a, a).eq(64).all().item<bool>() && at::linear(a[0], a).eq(64).all().item<bool>();
  std::exit(is_right ? at::get_num_threads() : 100);
}

TEST(CpuThreadsDeathTest, AreThoseThatOpenMpGives) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("OMP_THREAD_LIMIT", "1", 1);
  EXPECT_EXIT(exit_with_threads(4), testing::ExitedWithCode(1),
              "warning: OpenMP gives 1 thread instead of 4 .OMP_THREAD_LIMIT=1.");
  setenv("OMP_THREAD_LIMIT", "3", 1);
  EXPECT_EXIT(exit_with_threads(4), testing::ExitedWithCode(3), "3 threads instead of 4");
  unsetenv("OMP_THREAD_LIMIT");
  setenv("OMP_MAX_ACTIVE_LEVELS", "0", 1);
  EXPECT_EXIT(exit_with_threads(2), testing::ExitedWithCode(1), "1 thread instead of 2 .OMP_MAX_ACTIVE_LEVELS=0.");
  unsetenv("OMP_MAX_ACTIVE_LEVELS");
  setenv("OMP_DYNAMIC", "true", 1);  // teams as large as the machine is idle
  EXPECT_EXIT(exit_with_threads(8), testing::ExitedWithCode(8), "");
  unsetenv("OMP_DYNAMIC");
}

TEST(CpuThreadsDeathTest, LibTorchsOwnOpenMpIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Dl_info libtorch{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&at::get_num_threads), &libtorch), 0);
  const std::string own = std::filesystem::path(libtorch.dli_fname).parent_path() / "libgomp.so.1";
  setenv("LD_PRELOAD", own.c_str(), 1);
  EXPECT_EXIT(exit_with_threads(2), testing::ExitedWithCode(2), "OpenMP is " + own + " instead of LLVM's");
  unsetenv("LD_PRELOAD");
}

// What LLVM's OpenMP makes for this process. One that was killed before it had written leaves it empty.
std::string openmp_file() { return fmt::format("/dev/shm/__KMP_REGISTERED_LIB_{}_{}", getpid(), getuid()); }

TEST(CpuThreadsDeathTest, StartBesideAnEmptyFileOfOpenMpsAndLeaveNone) {
  if (!spin_time()) GTEST_SKIP() << "this build uses LibTorch's libgomp";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto start = [] {
    std::ofstream{openmp_file()}.flush();
    process::run(0, nullptr, [](int, char**) {
      use_cpu_threads(2);
      return std::filesystem::exists(openmp_file()) ? 1 : 42;
    });
  };
  EXPECT_EXIT(start(), testing::ExitedWithCode(42), "");
}

TEST(CpuThreads, AreAsManyAsAskedFor) {
  const int before = at::get_num_threads();
  use_cpu_threads(1);
  EXPECT_EQ(at::get_num_threads(), 1);
  use_cpu_threads(2);
  EXPECT_EQ(at::get_num_threads(), 2);
  at::set_num_threads(before);
}

}  // namespace
}  // namespace gpt::device
