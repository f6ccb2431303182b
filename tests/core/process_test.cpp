#include "gpt/core/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/child_process.h"
#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/log.h"
#include "gpt/core/output.h"
#include "gpt/core/running_clock.h"

namespace gpt {
namespace {

using Body = int (*)(int, char**);

ChildResult run_program(Body body, std::string name = "gpt-train") {
  return run_child([&]() -> int {
    char* const arguments[] = {name.data(), nullptr};
    process::run(1, const_cast<char**>(arguments), body);
  });
}

// The thread that takes signals needs a moment; a test that waits in vain ends at its time limit.
template <class Condition>
void wait_until(Condition condition) {
  while (!condition()) usleep(100);
}

TEST(ProcessRun, ReturnsWhatTheBodyReturns) {
  EXPECT_EQ(run_program([](int, char**) { return 0; }).status, 0);
  EXPECT_EQ(run_program([](int, char**) { return 143; }).status, 143);
}

// LLVM's OpenMP removes it in a destructor, which programs do not reach.
TEST(ProcessRun, LeavesNoFileOfOpenMps) {
  const ChildResult child = run_program([](int, char**) {
    const std::string file =
        "/dev/shm/__KMP_REGISTERED_LIB_" + std::to_string(getpid()) + "_" + std::to_string(getuid());
    std::fputs(file.c_str(), stderr);
    return std::ofstream(file).put('x').flush() ? 0 : 50;
  });
  EXPECT_EQ(child.status, 0);
  EXPECT_FALSE(std::filesystem::exists(child.errors)) << child.errors;
}

TEST(ProcessRun, AnErrorIsOneLineAndItsCode) {
  const ChildResult child = run_program([](int, char**) -> int { throw Error(ExitCode::data, "a.txt: too short"); });
  EXPECT_EQ(child.errors, "error: a.txt: too short\n");
  EXPECT_EQ(child.status, 3);
}

TEST(ProcessRun, AnErrorIsShortAndCommandsNoTerminal) {
  const ChildResult child = run_program([](int, char**) -> int {
    throw Error(ExitCode::config, "\x1b[2J\n\u202e" + std::string(100'000, 'x') + ": there is no such file");
  });
  EXPECT_TRUE(child.errors.starts_with("error: \\x1b[2J\\x0a\\u202exxx")) << child.errors;
  EXPECT_TRUE(child.errors.ends_with("xxx: there is no such file\n")) << child.errors;
  EXPECT_LT(child.errors.size(), 2100u);
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

TEST(ProcessRun, OutOfMemoryNamesNoSettingThatAProgramDoesNotHave) {
  const Body body = [](int, char**) -> int { throw std::bad_alloc(); };
  for (const std::string name : {"generate", "serve", "prepare", "export", "prune", "new"}) {
    EXPECT_EQ(
        run_program(body, "build/bin/gpt-" + name).errors,
        "error: out of memory (host memory): stop other programs that hold memory, or use a machine with more of it\n");
  }
  EXPECT_EQ(
      run_program(body, "gpt-eval").errors,
      "error: out of memory (host memory): lower --batch-size, stop other programs that hold memory, or use a machine "
      "with more of it\n");
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
    dup2(open("/dev/full", O_WRONLY), STDOUT_FILENO);
    output::write("sample");
    return 0;
  });
  EXPECT_EQ(full.status, 8);
  EXPECT_EQ(full.errors, "error: cannot write standard output: No space left on device\n");
  const ChildResult left = run_program([](int, char**) {
    int ends[2];
    if (pipe(ends) != 0) return 50;
    close(ends[0]);
    dup2(ends[1], STDOUT_FILENO);
    output::write("sample");
    return 0;
  });
  EXPECT_EQ(left.status, 0) << left.errors;
}

// Standard output and standard error are one pipe, which nobody reads and which is full.
void stop_reading() {
  int ends[2];
  if (pipe(ends) != 0) _exit(50);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) dup2(ends[1], fd);
  const std::string filling(1 << 20, 'x');
  output::write(filling);
}

// Leaves as main() does, with what nobody reads.
ChildResult run_and_leave(Body body) {
  return run_child([=]() -> int { process::run(0, nullptr, body); });
}

TEST(ProcessRun, OutputThatNobodyReadsKeepsNoProgramFromStopping) {
  const ChildResult asked_before = run_and_leave([](int, char**) {
    process::watch_signals();
    stop_reading();
    kill(getpid(), SIGTERM);
    wait_until([] { return process::stop_signal() != 0; });
    log::info("a line");
    output::write(std::string(3 << 20, 'x'));
    return 128 + SIGTERM;
  });
  EXPECT_EQ(asked_before.status, 128 + SIGTERM);
  const ChildResult asked_at_the_end = run_and_leave([](int, char**) {
    process::watch_signals();
    stop_reading();
    std::thread([] {
      usleep(10'000);
      kill(getpid(), SIGTERM);
    }).detach();
    return 0;
  });
  EXPECT_EQ(asked_at_the_end.status, 128 + SIGTERM);
}

TEST(ProcessIsOutOfMemory, KnowsTheAllocatorsByWhatTheySay) {
  EXPECT_TRUE(process::is_out_of_memory(std::bad_alloc()));
  EXPECT_TRUE(process::is_out_of_memory(std::runtime_error("not enough memory for a tensor of 64 bytes")));
  EXPECT_TRUE(process::is_out_of_memory(std::runtime_error("CUDNN_STATUS_ALLOC_FAILED")));
  EXPECT_FALSE(process::is_out_of_memory(Error(ExitCode::memory, "this run does not fit into memory: about 3 GB")));
}

constexpr int kAliveAfterAll = 42;

// Sends `signals` in order, each after the time that makes a second Ctrl-C a deliberate one if `slowly`.
ChildResult stopped_by(const std::vector<int>& signals, bool slowly, int64_t unsaved = 0,
                       const char* announcement = nullptr) {
  return run_child([=] {
    process::watch_signals();
    process::announce_stops(announcement);
    process::set_unsaved_updates(unsaved);
    for (const int signal : signals) {
      kill(getpid(), signal);
      wait_until([=] { return process::stop_signal() == signals[0]; });
      usleep(slowly ? 1'100'000 : 10'000);
    }
    return kAliveAfterAll;
  });
}

TEST(Signals, TheFirstAsksToStop) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EQ(stopped_by({signal}, /*slowly=*/false).status, kAliveAfterAll);
  }
}

// timeout, terminals and launchers send a signal twice.
TEST(Signals, OnesThatCloselyFollowChangeNothing) {
  EXPECT_EQ(stopped_by({SIGINT, SIGINT, SIGINT}, /*slowly=*/false, 5).status, kAliveAfterAll);
  EXPECT_EQ(stopped_by({SIGTERM, SIGTERM, SIGINT}, /*slowly=*/false, 5).status, kAliveAfterAll);
}

TEST(Signals, ADeliberateSecondCtrlCSaysWhatIsLost) {
  const ChildResult child = stopped_by({SIGINT, SIGINT}, /*slowly=*/true, 5);
  EXPECT_EQ(child.status, static_cast<int>(ExitCode::left_unsaved));
  EXPECT_EQ(child.errors, "error: quit without saving: 5 updates since the last checkpoint are lost\n");
}

TEST(Signals, ADeliberateSecondCtrlCWithNothingToLoseIsAnInterrupt) {
  const ChildResult child = stopped_by({SIGINT, SIGINT}, /*slowly=*/true);
  EXPECT_EQ(child.status, 128 + SIGINT);
  EXPECT_EQ(child.errors, "");
}

TEST(Signals, ADeliberateSecondCtrlCOfATrainingSaysThatNothingIsLost) {
  const ChildResult child = stopped_by({SIGINT, SIGINT}, /*slowly=*/true, 0, "Stopping");
  EXPECT_EQ(child.status, 128 + SIGINT);
  EXPECT_TRUE(child.errors.ends_with("Quit without saving: no update was lost\n")) << child.errors;
}

TEST(Signals, TerminationNeverLeavesHoweverOftenItComes) {
  EXPECT_EQ(stopped_by({SIGTERM, SIGTERM, SIGTERM}, /*slowly=*/true, 5).status, kAliveAfterAll);
  EXPECT_EQ(stopped_by({SIGHUP, SIGHUP, SIGTERM}, /*slowly=*/true, 5).status, kAliveAfterAll);
}

TEST(Signals, TheFirstIsAnsweredAtOnce) {
  EXPECT_EQ(stopped_by({SIGINT, SIGINT}, /*slowly=*/false, 0, "Stopping").errors,
            "warning: Stopping; press Ctrl-C again to quit without saving\n");
  EXPECT_EQ(stopped_by({SIGTERM}, /*slowly=*/false, 0, "Stopping").errors, "warning: Stopping\n");
}

TEST(Signals, AnErrorOfAnInterruptedProgramHasTheStatusOfItsSignal) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const ChildResult child = run_child([=]() -> int {
      static int sent;
      sent = signal;
      process::run(0, nullptr, [](int, char**) -> int {
        process::watch_signals();
        kill(getpid(), sent);
        wait_until([] { return process::stop_signal() != 0; });
        throw Error(ExitCode::interrupted, "interrupted while reading");
      });
    });
    EXPECT_EQ(child.status, 128 + signal);
  }
}

// The file is a pipe that nobody writes to.
TEST(Signals, AStopEndsTheWaitForAFile) {
  const ScratchFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const ChildResult child = run_child([&]() -> int {
    process::watch_signals();
    kill(getpid(), SIGTERM);
    try {
      (void)read_file(pipe, ExitCode::data);
    } catch (const Error& error) {
      dprintf(STDERR_FILENO, "%s", error.what());
      return static_cast<int>(error.code());
    }
    return 50;
  });
  EXPECT_EQ(child.errors, "interrupted while waiting for " + pipe);
  EXPECT_EQ(child.status, static_cast<int>(ExitCode::interrupted));
}

TEST(Signals, AHangUpThatNohupIgnoresStaysIgnored) {
  const ChildResult child = run_child([] {
    signal(SIGHUP, SIG_IGN);
    process::watch_signals();
    kill(getpid(), SIGHUP);
    kill(getpid(), SIGUSR1);
    wait_until([] { return process::take_save_request(); });
    return process::stop_signal();
  });
  EXPECT_EQ(child.status, 0);
}

TEST(Signals, UntilTheyAreWatchedTheyLeave) {
  const ChildResult child = run_program([](int, char**) {
    kill(getpid(), SIGUSR1);  // asks for a checkpoint that there is not: no reason to die
    kill(getpid(), SIGTERM);
    wait_until([] { return false; });
    return 50;
  });
  EXPECT_EQ(child.status, 128 + SIGTERM);
}

TEST(ProcessRun, ClosedStandardDescriptorsTakeNoFilesOfOurs) {
  const ChildResult child =
      run_program([](int, char**) { return open("/dev/zero", O_RDONLY) > STDERR_FILENO ? 0 : 50; });
  EXPECT_EQ(child.status, 0);
  const ChildResult closed = run_child([]() -> int {
    for (int fd = STDIN_FILENO; fd <= STDOUT_FILENO; ++fd) close(fd);
    process::run(0, nullptr, [](int, char**) { return open("/dev/zero", O_RDONLY) > STDERR_FILENO ? 0 : 50; });
  });
  EXPECT_EQ(closed.status, 0) << closed.errors;
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
      for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) missing += sigismember(&blocked, signal) == 0;
    }).join();
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) missing += sigismember(&blocked, signal) == 0;
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

// The child's steady clock goes on while it is stopped; how long it waits for that to show does not matter.
TEST(Signals, AStopOfTheProcessTakesNoTimeOfTheRunningClock) {
  constexpr auto kStopped = std::chrono::milliseconds(600), kShown = std::chrono::milliseconds(300);
  const auto steady_ahead = [] {
    const auto running = RunningClock::now().time_since_epoch();
    return std::chrono::steady_clock::now().time_since_epoch() - running;
  };
  const ChildResult child = run_child([&] {
    process::watch_signals();
    while (!RunningClock::is_watched()) usleep(1000);
    const auto before = steady_ahead();
    const pid_t stopped = getpid();
    const pid_t other = fork();
    if (other == 0) {
      kill(stopped, SIGSTOP);
      std::this_thread::sleep_for(kStopped);
      kill(stopped, SIGCONT);
      _exit(0);
    }
    wait_for(other);
    wait_until([&] { return steady_ahead() - before > kShown; });
    return 0;
  });
  EXPECT_EQ(child.status, 0);
}

}  // namespace
}  // namespace gpt
