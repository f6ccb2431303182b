// What the end of each process means for the run.
#include "gpt/distributed/launcher.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>

#include "gpt/core/log.h"
#include "gpt/core/process.h"

namespace gpt::distributed {
namespace {

constexpr int kPeer = static_cast<int>(ExitCode::peer), kNumerics = static_cast<int>(ExitCode::numerics);

Ending exited(int64_t rank, int status) { return {.rank = rank, .status = status}; }
DistributedConfig config_of(int64_t processes, std::optional<int64_t> least = {}, int64_t lanes = 1) {
  DistributedConfig config;
  config.processes = processes, config.min_processes = least, config.lanes = lanes;
  return config;
}

Ending killed(int64_t rank) { return {.rank = rank, .status = 128 + SIGKILL, .signal = SIGKILL}; }

TEST(Launcher, ARunEndsAsTheProcessThatFailedByItself) {
  EXPECT_EQ(status_of({exited(1, 0), exited(0, 0)}), 0);
  EXPECT_EQ(status_of({exited(1, kNumerics), exited(0, kPeer)}), kNumerics);
  EXPECT_EQ(status_of({exited(1, 130), exited(0, 9)}), 9);  // the first process knows what was lost
  EXPECT_EQ(status_of({killed(1), exited(0, kPeer), exited(2, kPeer)}), kPeer);
  EXPECT_EQ(status_of({killed(0), killed(1)}), kPeer);
}

TEST(Launcher, AsManyGoOnUnlessFewerMay) {
  const std::vector<Ending> one_lost{killed(2), exited(0, kPeer), exited(1, kPeer), exited(3, kPeer)};
  EXPECT_EQ(processes_after(one_lost, config_of(4)), 4);
  EXPECT_EQ(processes_after(one_lost, config_of(4, 4)), 4);
  EXPECT_EQ(processes_after(one_lost, config_of(4, 2)), 3);
  EXPECT_EQ(processes_after(one_lost, config_of(4, 2, 4)), 2);  // 3 do not divide them
  EXPECT_EQ(processes_after(one_lost, config_of(4, 1, 4)), 2);
  DistributedConfig divided = config_of(4, 2);
  divided.tensor_parallel = 2;
  EXPECT_EQ(processes_after(one_lost, divided), 2);  // 3 do not divide the model
  DistributedConfig stages = divided;
  std::swap(stages.tensor_parallel, stages.pipeline_parallel);
  EXPECT_EQ(processes_after(one_lost, stages), 2);
  divided.min_processes = 3;
  EXPECT_EQ(processes_after(one_lost, divided), std::nullopt);
}

TEST(Launcher, AStoppedProcessIsLostAndTooFewDoNotGoOn) {
  const std::vector<Ending> stopped{{.rank = 1, .status = 128 + SIGKILL, .signal = SIGKILL, .is_stopped = true},
                                    exited(0, kPeer)};
  EXPECT_EQ(processes_after(stopped, config_of(2, 1)), 1);
  EXPECT_EQ(processes_after({killed(0), killed(1), killed(2)}, config_of(3, 1)), std::nullopt);
}

TEST(Launcher, AfterAnEarlierRestartTheFewerCount) {
  // Two of four were left, and both have only missed each other.
  EXPECT_EQ(processes_after({exited(0, kPeer), exited(1, kPeer)}, config_of(4, 2)), 2);
}

// Exits as a run of two processes whose second is stopped when the first is done. Started again, both end.
[[noreturn]] void exit_as_a_run_with_a_stopped_process() {
  DistributedConfig config = config_of(2);
  config.timeout = 0.1, config.restarts = 1;
  const std::string script = R"(
    [ $RANK = 1 ] || { printf '\1' > /proc/self/fd/$GPT_TRAIN_MET; exit 0; }
    [ $GPT_TRAIN_RESTART = 1 ] || kill -STOP $$)";
  const int status = launch({"/bin/sh", "-c", script}, config, "/no/checkpoint");
  while (!log::flush({.patience = std::chrono::seconds(1)})) continue;
  std::_Exit(status);
}

TEST(LauncherDeathTest, AProcessThatIsStoppedWhenTheOthersAreDoneIsLost) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_as_a_run_with_a_stopped_process(), testing::ExitedWithCode(0),
              "starting again from the last checkpoint with 2 processes");
}

// As a run of two processes that do what the script says, each time that they are started.
[[noreturn]] void exit_as_a_run_of(const std::string& script) {
  process::watch_signals();
  DistributedConfig config = config_of(2);
  config.restarts = 1000;
  const int status = launch({"/bin/sh", "-c", script}, config, "/no/checkpoint");
  while (!log::flush({.patience = std::chrono::seconds(1)})) continue;
  std::_Exit(status);
}

// The processes hear no signal, and say nothing of having met.
TEST(LauncherDeathTest, ASignalBeforeAllHaveMetEndsThemAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_as_a_run_of("trap '' TERM INT; [ $RANK = 1 ] && kill -TERM $PPID; while :; do sleep 1; done"),
              testing::ExitedWithCode(143), "Stopped by SIGTERM before the processes had met: nothing had begun");
}

TEST(LauncherDeathTest, ASignalDuringARestartEndsTheRunAsTheSignal) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_as_a_run_of("[ $GPT_TRAIN_RESTART$RANK = 10 ] && kill -TERM $PPID; exit 6"),
              testing::ExitedWithCode(143), "in 1 s, because this start has saved nothing \\(restart 1 of 1000\\)");
}

TEST(Launcher, StartsThatSaveNothingWaitLongerAndLonger) {
  const auto seconds = [](int64_t starts) { return pause_after(starts).count(); };
  EXPECT_EQ(seconds(0), 0);
  EXPECT_EQ(seconds(1), 1);
  EXPECT_EQ(seconds(2), 2);
  EXPECT_EQ(seconds(5), 16);
  EXPECT_EQ(seconds(7), 60);
  EXPECT_EQ(seconds(1'000'000), 60);
}

}  // namespace
}  // namespace gpt::distributed
