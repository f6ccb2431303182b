// What is said about a starting point at the end of a run, or beyond it.
#include "gpt/run/finished.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace gpt::run {
namespace {

namespace fs = std::filesystem;

class FindFinishedTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "mine");
    config_.output_dir = folder_ / "mine";
    config_.training.schedule.max_steps = 20;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::optional<FinishedRun> found(int64_t step, int64_t evaluated_step, const std::string& folder = "mine",
                                   int64_t since_best = 0) const {
    StartingPoint start;
    start.path = folder_ / folder / "ckpt.pt";
    start.checkpoint.step = step;
    start.checkpoint.evaluated_step = evaluated_step;
    start.checkpoint.evaluations_since_best = since_best;
    return find_finished(start, config_, origins_, plan_run(config_.training, 10), /*has_validation=*/true);
  }

  const fs::path folder_ = fs::temp_directory_path() / ("gpt_finished_run_" + std::to_string(getpid()));
  Config config_;
  config::Origins origins_ = {{"training.max_steps", "--max_steps"}};
};

TEST_F(FindFinishedTest, EveryStepIsDoneAndTheLastOneEvaluated) {
  EXPECT_FALSE(found(19, 19));
  EXPECT_FALSE(found(20, 10));
  const auto finished = found(20, 20);
  ASSERT_TRUE(finished);
  EXPECT_FALSE(finished->is_foreign);
  EXPECT_EQ(finished->fact, config_.output_dir + " is finished: 20 of 20 steps are done");
  EXPECT_EQ(finished->remedy,
            "raise training.max_steps to continue it, add --restart to start anew, or begin another "
            "run with --output_dir " +
                config_.output_dir + "-2");
}

TEST_F(FindFinishedTest, SoIsARunWithoutPatienceForMore) {
  EXPECT_FALSE(found(12, 12, "mine", /*since_best=*/3));
  config_.training.cadence.patience = 3;
  EXPECT_FALSE(found(12, 12, "mine", /*since_best=*/2));
  const auto finished = found(12, 12, "mine", /*since_best=*/3);
  ASSERT_TRUE(finished);
  EXPECT_EQ(finished->fact,
            config_.output_dir + " is finished: it ended after step 12 of 20, with no new best in 3 evaluations");
  EXPECT_EQ(finished->remedy.find("set training.patience above 3, or to 0, to continue it, add --restart"), 0u)
      << finished->remedy;
  EXPECT_TRUE(found(12, 12, "other", /*since_best=*/3)->is_foreign);
}

TEST_F(FindFinishedTest, ALengthThatThisCommandDidNotGiveIsSaidToBeAnEarlierOne) {
  origins_.clear();
  EXPECT_EQ(found(20, 20)->fact,
            config_.output_dir + " is finished: 20 of 20 steps are done, the length that it began with");
}

TEST_F(FindFinishedTest, FromAnotherRunsCheckpointNothingWasDoneHere) {
  const auto finished = found(400, 10, "other");
  ASSERT_TRUE(finished);
  EXPECT_TRUE(finished->is_foreign);
  EXPECT_EQ(finished->fact.find((folder_ / "other/ckpt.pt").string() +
                                " is at step 400, but training.max_steps is 20, and"),
            0u)
      << finished->fact;
  EXPECT_EQ(
      finished->remedy,
      "set training.max_steps above 400, or begin a new run with its weights: training.init_from instead of resume_from");
  EXPECT_FALSE(found(19, 19, "other"));
}

TEST_F(FindFinishedTest, ALengthThatIsLessThanWasDoneIsNoSuccess) {
  for (const int64_t evaluated_step : {10, 21}) {  // stopped there, or finished
    const auto finished = found(21, evaluated_step);
    ASSERT_TRUE(finished);
    EXPECT_FALSE(finished->is_foreign);
    EXPECT_EQ(finished->fact, config_.output_dir + " is at step 21 already, beyond max_steps 20");
    EXPECT_EQ(finished->remedy, "set training.max_steps above 21 to continue, or choose another output_dir, such as " +
                                    config_.output_dir + "-2");
  }
}

// It was laid out for 100 updates, and has done 30.
TEST_F(FindFinishedTest, ATimedRunMayBeLimitedBySomethingElse) {
  config_.training.schedule.max_time.seconds = 60;
  StartingPoint start;
  start.path = folder_ / "mine/ckpt.pt";
  start.checkpoint.step = start.checkpoint.evaluated_step = 30;
  start.checkpoint.course = {.planned = 100, .total = 100};
  const auto finished = [&] {
    Plan plan = plan_run(config_.training, 10);
    plan.total_steps = 30;
    return find_finished(start, config_, origins_, plan, /*has_validation=*/true).value();
  };
  EXPECT_EQ(finished().fact, config_.output_dir + " is at step 30 already, beyond max_steps 20");
  EXPECT_EQ(finished().remedy.find("set training.max_steps above 30 to continue"), 0u) << finished().remedy;
  config_.training.schedule.max_steps = 30;
  EXPECT_EQ(finished().remedy.find("raise training.max_time and training.max_steps to continue it"), 0u)
      << finished().remedy;
  config_.training.schedule.max_steps.reset();
  EXPECT_EQ(finished().remedy.find("raise training.max_time to continue it"), 0u) << finished().remedy;
}

TEST_F(FindFinishedTest, EpochsAreCountedInEpochs) {
  config_.training.schedule.max_steps.reset();
  config_.training.schedule.epochs = 2;
  EXPECT_EQ(found(400, 400, "other")->remedy.find("set training.epochs above 40, or begin a new run"), 0u);
  EXPECT_EQ(found(35, 30)->fact, config_.output_dir + " is at step 35 already, beyond epochs 2 (20 steps)");
  EXPECT_EQ(found(35, 30)->remedy.find("set training.epochs above 3 to continue"), 0u);
  EXPECT_EQ(found(20, 20)->remedy.find("raise training.epochs to continue it"), 0u);
}

}  // namespace
}  // namespace gpt::run
