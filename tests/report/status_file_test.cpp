#include "gpt/report/status_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/scratch_folder.h"

namespace gpt::report {
namespace {

RunRecord run_of(int64_t first_step, int64_t total_steps) {
  RunRecord run;
  run.first_step = first_step, run.total_steps = total_steps;
  return run;
}

class StatusOfRun : public testing::Test {
 protected:
  RunStatus status() const { return read_status(slurp(folder_ / "status.json")).value(); }

  const ScratchFolder folder_;
  StatusFile file_{folder_ / "status.json", folder_ / "metrics.jsonl"};
};

TEST_F(StatusOfRun, SaysWhatTheRunDoes) {
  RunRecord run = run_of(0, 100);
  run.parameters = 7, run.epochs = 2;
  file_.begin(run);
  EXPECT_EQ(status().state, RunStatus::State::running);
  EXPECT_EQ(status().total_steps, 100);
  EXPECT_EQ(status().parameters, 7);
  EXPECT_EQ(status().activity, "starting");
  file_.activity({.step = 3, .what = "validating", .how_far = "0%", .remaining_seconds = 42});
  EXPECT_EQ(status().activity, "validating");
  EXPECT_EQ(status().how_far, "0%");
  EXPECT_EQ(status().step, 3);
  EXPECT_EQ(status().remaining_seconds, 42);
  file_.evaluation({.step = 3, .loss = 2, .bits_per_byte = 1.5});
  file_.evaluation({.step = 4, .loss = 2.5, .bits_per_byte = {}});
  EXPECT_EQ(status().validation->loss, 2.5);
  EXPECT_EQ(status().best_validation->step, 3);
  EXPECT_EQ(status().best_validation->bits_per_byte, 1.5);
}

TEST_F(StatusOfRun, SaysHowItEnded) {
  file_.begin(run_of(0, 100));
  file_.activity({.step = 3, .what = "training"});
  file_.stop({.step = 5, .why = "by SIGINT"});
  EXPECT_EQ(status().state, RunStatus::State::stopped);
  EXPECT_EQ(status().why, "by SIGINT");
  EXPECT_EQ(status().step, 5);
  EXPECT_EQ(status().activity, "");
  file_.begin(run_of(5, 100));
  EXPECT_EQ(status().why, "");
  file_.end();
  EXPECT_EQ(status().state, RunStatus::State::done);
}

TEST_F(StatusOfRun, KnowsTheBestOfEarlierStarts) {
  folder_.file("metrics.jsonl", "{\"step\":2,\"val_loss\":1.25}\n{\"step\":9,\"val_loss\":0.5}\n");
  file_.begin(run_of(5, 100));
  EXPECT_EQ(status().best_validation->loss, 1.25);
}

TEST(RunStatus, IsNotReadFromSomethingElse) {
  EXPECT_FALSE(read_status(""));
  EXPECT_FALSE(read_status("[]"));
  EXPECT_FALSE(read_status(R"({"state":"run)"));
  EXPECT_FALSE(read_status(R"({"state":"asleep"})"));
  const auto least = read_status(R"({"state":"running","step":"many","validation":7,"best_validation":{"step":1}})");
  ASSERT_TRUE(least);
  EXPECT_EQ(least->step, 0);
  EXPECT_FALSE(least->validation);
  EXPECT_TRUE(std::isnan(least->best_validation->loss));
}

}  // namespace
}  // namespace gpt::report
