#include "gpt/core/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "core/child_process.h"
#include "gpt/core/error.h"

namespace gpt {
namespace {

using Body = int (*)(int, char**);

ChildResult run_program(Body body) {
  return run_child([&] { return process::run(0, nullptr, body); });
}

TEST(ProcessRun, ReturnsWhatTheBodyReturns) {
  EXPECT_EQ(run_program([](int, char**) { return 0; }).status, 0);
  EXPECT_EQ(run_program([](int, char**) { return 143; }).status, 143);
}

TEST(ProcessRun, AnErrorIsOneLineAndItsCode) {
  const ChildResult child = run_program([](int, char**) -> int { throw Error(ExitCode::data, "a.txt: too short"); });
  EXPECT_EQ(child.errors, "error: a.txt: too short\n");
  EXPECT_EQ(child.status, 3);
}

TEST(ProcessRun, ABacktraceIsCutUnlessAskedFor) {
  auto body = [](int, char**) -> int { throw std::runtime_error("shapes differ\nException raised from mm\nframe #0"); };
  unsetenv("GPT_BACKTRACE");
  ChildResult child = run_program(body);
  EXPECT_EQ(child.errors, "error: shapes differ\n");
  EXPECT_EQ(child.status, 1);
  setenv("GPT_BACKTRACE", "1", 1);
  child = run_program(body);
  unsetenv("GPT_BACKTRACE");
  EXPECT_EQ(child.errors, "error: shapes differ\nException raised from mm\nframe #0\n");
}

TEST(ProcessRun, OutOfMemoryNamesTheSettingsToLower) {
  const Body bodies[] = {
      [](int, char**) -> int { throw std::bad_alloc(); },
      [](int, char**) -> int { throw std::runtime_error("CUDA out of memory. Tried to allocate 2.00 GiB.\nframe #0"); },
      [](int, char**) -> int {
        throw std::runtime_error(
            "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory");
      },
  };
  for (Body body : bodies) {
    const ChildResult child = run_program(body);
    EXPECT_EQ(child.status, 7);
    EXPECT_EQ(child.errors.find("error: out of memory ("), 0u) << child.errors;
    for (const char* key : {"training.batch_size", "training.gradient_accumulation_steps", "model.block_size",
                            "training.gradient_checkpointing"}) {
      EXPECT_NE(child.errors.find(key), std::string::npos) << child.errors;
    }
    EXPECT_EQ(child.errors.find('\n'), child.errors.size() - 1) << child.errors;
  }
}

TEST(ProcessRun, OutOfMemoryLeavesOutThePlaceInLibTorch) {
  const ChildResult child = run_program([](int, char**) -> int {
    throw std::runtime_error(
        "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: 9 bytes");
  });
  const std::string start = "error: out of memory (DefaultCPUAllocator: can't allocate memory: 9 bytes): lower ";
  EXPECT_EQ(child.errors.substr(0, start.size()), start);
}

TEST(ProcessRun, WhatIsNoExceptionIsCaughtToo) {
  EXPECT_EQ(run_program([](int, char**) -> int { throw 5; }).status, 1);
}

TEST(ProcessRun, BrokenPipesComeBackAsErrors) {
  const ChildResult child = run_program([](int, char**) {
    int ends[2];
    if (pipe(ends) != 0) return 50;
    close(ends[0]);
    return write(ends[1], "x", 1) == -1 && errno == EPIPE ? 0 : 51;
  });
  EXPECT_EQ(child.status, 0) << child.errors;
}

TEST(ProcessRun, LostOutputIsADiskErrorAndAReaderThatLeftIsNone) {
  const ChildResult full = run_program([](int, char**) {
    if (!freopen("/dev/full", "w", stdout)) return 50;
    std::fputs("sample", stdout);
    return 0;
  });
  EXPECT_EQ(full.status, 8);
  EXPECT_EQ(full.errors, "error: cannot write standard output: No space left on device\n");
  const ChildResult left = run_program([](int, char**) {
    int ends[2];
    if (pipe(ends) != 0) return 50;
    close(ends[0]);
    dup2(ends[1], STDOUT_FILENO);
    std::fputs("sample", stdout);
    return 0;
  });
  EXPECT_EQ(left.status, 0) << left.errors;
}

TEST(ProcessRun, AllocatorSettingsOfTheUserStay) {
  auto body = [](int, char**) {
    const char* current = getenv("PYTORCH_ALLOC_CONF");
    std::fputs(current ? current : "unset", stderr);
    return 0;
  };
  unsetenv("PYTORCH_ALLOC_CONF");
  unsetenv("PYTORCH_CUDA_ALLOC_CONF");
  EXPECT_EQ(run_program(body).errors, "expandable_segments:True");
  setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64", 1);
  EXPECT_EQ(run_program(body).errors, "unset");
  unsetenv("PYTORCH_CUDA_ALLOC_CONF");
  setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:32", 1);
  EXPECT_EQ(run_program(body).errors, "max_split_size_mb:32");
  unsetenv("PYTORCH_ALLOC_CONF");
}

// The thread that takes signals needs a moment; a test that waits in vain ends at its time limit.
template <class Condition>
void wait_until(Condition condition) {
  while (!condition()) usleep(100);
}

TEST(Signals, TheFirstAsksToStopAndTheSecondLeavesAtOnce) {
  for (const int first : {SIGINT, SIGTERM}) {
    const ChildResult child = run_child([=] {
      process::watch_signals();
      if (process::stop_signal() != 0) return 50;
      kill(getpid(), first);
      wait_until([=] { return process::stop_signal() == first; });
      kill(getpid(), SIGTERM);
      wait_until([] { return false; });
      return 51;
    });
    EXPECT_EQ(child.status, 128 + SIGTERM);
  }
}

TEST(Signals, AStopThatWasMetIsForgotten) {
  const ChildResult child = run_child([] {
    process::watch_signals();
    for (int i = 0; i < 2; ++i) {
      kill(getpid(), SIGINT);
      wait_until([] { return process::stop_signal() == SIGINT; });
      process::forget_stop_signal();
    }
    return process::stop_signal() == 0 ? 0 : 50;
  });
  EXPECT_EQ(child.status, 0);
}

TEST(Signals, AtAPromptTheFirstLeaves) {
  const ChildResult child = run_child([] {
    process::watch_signals();
    { const process::LeaveAtFirstSignal before; }
    kill(getpid(), SIGINT);
    wait_until([] { return process::stop_signal() == SIGINT; });
    process::forget_stop_signal();
    const process::LeaveAtFirstSignal waiting;
    kill(getpid(), SIGINT);
    wait_until([] { return false; });
    return 50;
  });
  EXPECT_EQ(child.status, 128 + SIGINT);
}

// A handler would, wherever it interrupts generated code.
TEST(Signals, NoThreadButTheirOwnTakesThem) {
  const ChildResult child = run_child([] {
    process::watch_signals();
    sigset_t blocked;
    int missing = 0;
    std::thread([&] {
      pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
      for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) missing += sigismember(&blocked, signal) == 0;
    }).join();
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) missing += sigismember(&blocked, signal) == 0;
    return missing;
  });
  EXPECT_EQ(child.status, 0);
}

TEST(Signals, EachSaveRequestIsTakenOnce) {
  const ChildResult child = run_child([] {
    process::watch_signals();
    if (process::take_save_request()) return 50;
    kill(getpid(), SIGUSR1);
    wait_until([] { return process::take_save_request(); });
    return process::take_save_request() || process::stop_signal() != 0 ? 51 : 0;
  });
  EXPECT_EQ(child.status, 0);
}

}  // namespace
}  // namespace gpt
