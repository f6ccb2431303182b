// What is missing of the system is said before a library dies of it.
#include "gpt/core/surroundings.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <cerrno>
#include <string>

#include "core/failing_calls.h"
#include "core/scratch_folder.h"
#include "gpt/core/file.h"
#include "gpt/core/log.h"
#include "gpt/core/ordered_prefetcher.h"
#include "gpt/core/process.h"
#include "support/expect_error.h"

namespace gpt {
namespace {

int run_with(int (*body)(int, char**)) {
  char name[] = "gpt-generate";
  char* const arguments[] = {name, nullptr};
  process::run(1, const_cast<char**>(arguments), body);
}

TEST(Surroundings, ANumberOfThreadsBelowZeroIsRefusedByName) {
  for (const char* value : {"-3", "4, -1"}) {
    const ChildResult child = run_child([value] {
      setenv("OMP_NUM_THREADS", value, /*overwrite=*/1);
      return run_with([](int, char**) { return 0; });
    });
    EXPECT_EQ(child.status, 2) << value;
    EXPECT_EQ(child.errors, "error: environment variable OMP_NUM_THREADS: must be a positive number, got '" +
                                std::string(value) + "'\n");
  }
  for (const char* value : {"", "2", "2,2", "x", "0"}) {
    const ChildResult child = run_child([value] {
      setenv("OMP_NUM_THREADS", value, /*overwrite=*/1);
      return run_with([](int, char**) { return 0; });
    });
    EXPECT_EQ(child.status, 0) << value << child.errors;
  }
}

TEST(Surroundings, AStackThatIsTooSmallIsRaisedOrRefused) {
  const auto body = [](rlim_t most) {
    const rlimit limit{.rlim_cur = 64 << 10, .rlim_max = most};
    setrlimit(RLIMIT_STACK, &limit);
    return run_with([](int, char**) {
      volatile char deep[512 << 10];
      deep[0] = 1;
      return static_cast<int>(deep[0]) - 1;
    });
  };
  EXPECT_EQ(run_child([&] { return body(RLIM_INFINITY); }).status, 0);
  const ChildResult child = run_child([&] { return body(64 << 10); });
  EXPECT_EQ(child.status, 7);
  EXPECT_NE(child.errors.find("error: the stack is limited to 65.5 kB"), std::string::npos) << child.errors;
  EXPECT_NE(child.errors.find("(ulimit -s 8192)"), std::string::npos) << child.errors;
}

TEST(Surroundings, SharedMemoryAndRandomNumbersAreAskedFor) {
  const ScratchFolder folder;
  surroundings::require_shared_memory(folder.path());
  EXPECT_EQ(names_in(folder.path()).size(), 0U);
  EXPECT_ERROR(surroundings::require_shared_memory("/proc/self"), ExitCode::disk, "cannot write /proc/self: ");
  const ChildResult small = run_child([&] {
    const rlimit nothing{0, 0};
    setrlimit(RLIMIT_FSIZE, &nothing);
    signal(SIGXFSZ, SIG_IGN);
    surroundings::require_shared_memory(folder.path());
    return 0;
  });
  EXPECT_NE(small.errors.find("raise the limit of files (ulimit -f unlimited)"), std::string::npos) << small.errors;
  surroundings::require_random_numbers();
  EXPECT_ERROR(surroundings::require_random_numbers(folder.path() + "/none"), ExitCode::disk, "LibTorch needs it");
}

// As under ulimit -u, which does not count for root. A child whose calls fail has no thread yet.
ChildResult without_threads(const std::function<int()>& body) {
  return run_child([&] {
    if (!fail_calls({{SYS_clone3, EAGAIN}, {SYS_clone, EAGAIN}})) return kNotPermitted;
    return body();
  });
}

TEST(Surroundings, WhereNoThreadCanBeStartedAProgramSaysSo) {
  const ChildResult child = without_threads([] { return run_with([](int, char**) { return 0; }); });
  if (child.status == kNotPermitted) GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(child.status, 7);
  EXPECT_EQ(child.errors, std::string("error: cannot start a thread: ") + surroundings::kThreadsRemedy + "\n");
}

TEST(Surroundings, ThreadsThatOpenMpWouldStartAreTriedBefore) {
  surroundings::require_threads(3);
  const ChildResult child = without_threads([] {
    try {
      surroundings::require_threads(3);
    } catch (const Error& error) { log::error(error.what()); }
    return 0;
  });
  if (child.status == kNotPermitted) GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(child.errors.find("error: cannot start 3 threads, only 0: the limit of threads and processes"), 0U)
      << child.errors;
}

TEST(Surroundings, HelpersAreDoneWithout) {
  const ChildResult child = without_threads([] {
    OrderedPrefetcher<int64_t> prefetcher(2, 4, 10, [](int64_t i) { return i * i; });
    for (int64_t i = 0; i < 10; ++i)
      if (prefetcher.next() != i * i) return 1;
    return 0;
  });
  if (child.status == kNotPermitted) GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(child.status, 0) << child.errors;
}

}  // namespace
}  // namespace gpt
