#include "gpt/board/followed_run.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "core/scratch_folder.h"
#include "gpt/core/lock.h"
#include "gpt/report/metrics_file.h"

namespace gpt::board {
namespace {

report::RunRecord run_of_ten() {
  report::RunRecord run;
  run.total_steps = 10;
  return run;
}

class OneRun : public testing::Test {
 protected:
  FollowedRun follow() const { return FollowedRun(run_, "mine"); }
  void log(int64_t step, double loss) {
    metrics_.step({.step = step, .loss = loss, .step_ms = 10, .tokens_per_second = 100, .mfu = {}});
  }
  // Taken long ago.
  void let_lock_be_old() const {
    std::filesystem::last_write_time(run_ + "/.lock",
                                     std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  }
  static std::string state_of(FollowedRun& run) {
    run.look();
    run.check(Clock::now());
    return run.row().state;
  }

  const ScratchFolder folder_;
  const std::string run_ = folder_.path();
  report::MetricsFile metrics_{run_ + "/metrics.jsonl"};
  report::StatusFile status_{run_ + "/status.json", run_ + "/metrics.jsonl"};
};

TEST_F(OneRun, GoesOnWhileItsLockIsHeld) {
  FollowedRun run = follow();
  EXPECT_EQ(run.row().state, "");
  std::optional<FolderLock> lock(std::in_place, run_, ExitCode::config, "output_dir");
  EXPECT_EQ(state_of(run), "starting");
  let_lock_be_old();
  status_.begin(run_of_ten());
  status_.activity({.step = 1, .what = "validating", .how_far = "5%"});
  EXPECT_EQ(state_of(run), "running");
  EXPECT_EQ(run.row().activity, "validating 5%");
  status_.end();
  EXPECT_EQ(state_of(run), "done");
  lock.reset();
  EXPECT_EQ(state_of(run), "done");
}

TEST_F(OneRun, WasKilledWhereNobodyHoldsTheLock) {
  status_.begin(run_of_ten());
  status_.activity({.step = 4, .what = "training"});
  folder_.file(".lock", "1");
  let_lock_be_old();
  FollowedRun run = follow();
  EXPECT_EQ(run.row().state, "killed");
  EXPECT_EQ(run.row().step, 4);
  EXPECT_EQ(run.row().activity, "");
  // What a start before has left is not said of the next one, which has the lock again.
  const FolderLock lock(run_, ExitCode::config, "output_dir");
  std::filesystem::last_write_time(run_ + "/.lock",
                                   std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(state_of(run), "starting");
}

TEST_F(OneRun, WhatItsDeviceDoesIsToldWhileItGoesOn) {
  std::optional<FolderLock> lock(std::in_place, run_, ExitCode::config, "output_dir");
  let_lock_be_old();
  status_.begin(run_of_ten());
  status_.activity({.step = 1, .what = "training"});
  metrics_.step({.step = 1, .mfu = {}, .devices = {{.cores = 2, .cores_busy = 1.5}}});
  FollowedRun run = follow();
  EXPECT_EQ(state_of(run), "running");
  ASSERT_EQ(run.row().devices.size(), 1u);
  EXPECT_EQ(run.row().devices[0].cores_busy, 1.5);
  status_.end();
  EXPECT_EQ(state_of(run), "done");
  EXPECT_TRUE(run.row().devices.empty());
  EXPECT_EQ(run.history().last_devices.size(), 1u) << "its page still has it";
}

TEST_F(OneRun, ARunWithoutStatusIsKnownByItsReport) {
  report::HtmlReport report(run_ + "/report.html", run_ + "/metrics.jsonl");
  report.begin(run_of_ten());
  FollowedRun run = follow();
  EXPECT_EQ(run.row().state, "killed");
  report.stop({.step = 3, .why = "by SIGHUP"});
  EXPECT_EQ(state_of(run), "stopped");
  EXPECT_EQ(run.row().total_steps, 10);
  EXPECT_EQ(run.page().stopped, "by SIGHUP");
  report.end();
  EXPECT_EQ(state_of(run), "done");
}

TEST_F(OneRun, TheEndOfItsMetricsSaysHowItStands) {
  for (int64_t step = 1; step <= 1000; ++step) log(step, 5 - 0.002 * static_cast<double>(step));
  metrics_.evaluation({.step = 1000, .loss = 3.5, .bits_per_byte = {}});
  FollowedRun run = follow();
  EXPECT_EQ(run.row().step, 1000);
  EXPECT_EQ(run.row().loss, 3);
  EXPECT_EQ(run.row().best, 3.5);
  EXPECT_GT(run.history().loss.points().front().step, 500);
  run.want(Clock::now());
  EXPECT_EQ(run.history().loss.points().front().step, 1);
  EXPECT_EQ(run.history().loss.last_step(), 1000);
  run.check(Clock::now() + std::chrono::minutes(2));  // nobody looks any more
  EXPECT_GT(run.history().loss.points().front().step, 500);
}

TEST_F(OneRun, CurvesBeginAnewWithAResumedRun) {
  log(1, 5), log(2, 4);
  FollowedRun run = follow();
  run.want(Clock::now());
  const auto before = run.versions();
  EXPECT_FALSE(run.look());
  EXPECT_EQ(run.versions().news, before.news);
  log(3, 3);
  EXPECT_TRUE(run.look());
  EXPECT_GT(run.versions().news, before.news);
  EXPECT_EQ(run.versions().beginnings, before.beginnings);
  std::ofstream(run_ + "/metrics.new") << "{\"step\":1,\"loss\":5,\"step_ms\":1}\n";
  std::filesystem::rename(run_ + "/metrics.new", run_ + "/metrics.jsonl");
  EXPECT_TRUE(run.look());
  EXPECT_GT(run.versions().beginnings, before.beginnings);
  EXPECT_EQ(run.history().loss.last_step(), 1);
  EXPECT_EQ(run.row().step, 1);
}

TEST_F(OneRun, WarningsOfItsLogArePartOfThePage) {
  folder_.file("train.log",
               "2026-11-29 08:06:02 step 1/7 | loss 4\n2026-11-29 08:06:02 warning: overlap: leave it out\n");
  FollowedRun run = follow();
  EXPECT_TRUE(run.page().live->warnings.empty());
  run.want(Clock::now());
  EXPECT_EQ(run.page().live->warnings, std::vector<std::string>{"2026-11-29 08:06:02 warning: overlap: leave it out"});
}

}  // namespace
}  // namespace gpt::board
