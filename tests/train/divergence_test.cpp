// What becomes of a run whose loss jumps: because the test spoils its weights between two updates.
#include "gpt/train/divergence.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/file.h"
#include "gpt/optim/lr_schedule.h"
#include "gpt/train/trainer.h"
#include "support/expect_error.h"
#include "train/tiny_run.h"

namespace gpt::train {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kWhole = 20;

struct Told {
  std::vector<std::string> events;  // but for saved files
  std::vector<double> learning_rates;
};

using AfterStep = std::function<void(int64_t step)>;

class Follows : public report::Listener {
 public:
  Follows(Told& told, AfterStep after_step) : told_(told), after_step_(std::move(after_step)) {}
  void step(const report::StepRecord& record) override {
    told_.learning_rates.push_back(record.learning_rate);
    after_step_(record.step);
  }
  void event(const report::EventRecord& record) override {
    if (!record.what.starts_with("saved ")) told_.events.push_back(fmt::format("{}: {}", record.step, record.what));
  }

 private:
  Told& told_;
  const AfterStep after_step_;
};

class DivergenceTest : public testing::Test {
 protected:
  void SetUp() override {
    corpus_.validation = corpus_.train;
    TrainingConfig& training = config_.training;
    training.schedule.max_steps = kWhole;
    training.precision.use_amp = false;
    training.cadence.log_interval = 1;
    training.cadence.eval_interval = {4, Interval::Unit::steps};
    training.cadence.eval_batches = 0;
    training.cadence.checkpoint_interval = {5, Interval::Unit::steps};
    divergence_.spike_window = 8;
  }

  // The weights are spoiled after the steps `spoiled_`.
  ExitCode run(const std::string& name, const AfterStep& after_step = nullptr) {
    told_ = {};
    const run::Folder folder(root_ / name);
    run::Beginning begins{folder.find_start("auto", /*restart=*/false).start, {}};
    begins.decisions = run::decisions_to_come(folder, begins, replay_);
    const run::Setup setup{config_, corpus_, device::describe_device(at::kCPU), device::Precision{}};
    run::Run run(setup, begins);
    run::begin_decisions(folder, run.state().decisions, begins.decisions);
    const auto follow = [&](int64_t step) {
      if (after_step) after_step(step);
      if (spoiled_.contains(step)) run.model().parameters().flat_values().detach().mul_(3);
    };
    report::Listeners listeners;
    listeners.add(std::make_unique<Follows>(told_, follow), "test");
    return Trainer(run, folder, listeners, /*is_saved=*/begins.start && begins.start->is_last, begins.decisions).run();
  }
  checkpoint::Checkpoint last(const std::string& name) const {
    return checkpoint::load_checkpoint(root_ / (name + "/ckpt.pt"));
  }
  std::string bytes(const std::string& name) const {
    return read_file(root_ / (name + "/ckpt.pt"), ExitCode::checkpoint);
  }

  ScratchFolder root_;
  data::Corpus corpus_ = some_corpus(3);
  Config config_ = tiny_config(corpus_);
  DivergenceConfig& divergence_ = config_.training.cadence.divergence;
  std::set<int64_t> spoiled_{
      8, 12, 16};       // the first steps after which the window is full, if the run goes back to step 5 each time
  std::string replay_;  // a file of decisions
  Told told_;
};

const std::vector<checkpoint::Decision> kDecided = {{9, run::kLearningRateFactor, 0.5},
                                                    {13, run::kLearningRateFactor, 0.25},
                                                    {17, run::kLearningRateFactor, 0.125}};

TEST_F(DivergenceTest, ARunGoesBackAndGoesOn) {
  divergence_.reaction = OnDivergence::rollback;
  divergence_.rollback_lr_factor = 0.5;
  EXPECT_EQ(run("run"), ExitCode::ok);
  const checkpoint::Checkpoint end = last("run");
  EXPECT_EQ(end.step, kWhole);
  EXPECT_EQ(end.rollbacks, 3);
  EXPECT_EQ(end.spikes, 3);
  EXPECT_EQ(end.learning_rate_factor, 0.125);
  EXPECT_EQ(end.decisions, kDecided);
  EXPECT_EQ(run::read_decisions(root_ / "run/decisions.jsonl"), kDecided);
  EXPECT_EQ(end.skipped_steps, 17 - 5) << "the updates after step 5 up to the last spike";
  EXPECT_EQ(end.optimizer.step_count.item<float>(), 8);
  ASSERT_EQ(told_.events.size(), 3u);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(told_.events[i].starts_with(fmt::format("{}: went back to the weights of step 5: ", 9 + 4 * i)))
        << told_.events[i];
  ASSERT_EQ(std::ssize(told_.learning_rates), kWhole);
  for (int64_t step = 0; step < kWhole; ++step) {
    const double factor = step < 9 ? 1 : step < 13 ? 0.5 : step < 17 ? 0.25 : 0.125;
    EXPECT_EQ(told_.learning_rates[step], factor * optim::learning_rate_at(config_.training.schedule, step, kWhole))
        << step;
  }
}

TEST_F(DivergenceTest, ARunThatReplaysTheDecisionsIsTheSame) {
  divergence_.reaction = OnDivergence::rollback;
  divergence_.rollback_lr_factor = 0.5;
  EXPECT_EQ(run("run"), ExitCode::ok);
  const checkpoint::Checkpoint decided = last("run");
  divergence_.rollback_lr_factor = 1;  // the run alone would leave the rate as it is
  EXPECT_EQ(run("alone"), ExitCode::ok);
  EXPECT_FALSE(last("alone").model[0].second.equal(decided.model[0].second));
  EXPECT_TRUE(last("alone").decisions.empty());
  replay_ = root_ / "run/decisions.jsonl";
  EXPECT_EQ(run("replay"), ExitCode::ok);
  expect_same_weights_and_moments(last("replay"), decided);
  EXPECT_EQ(last("replay").decisions, kDecided);
  EXPECT_EQ(read_file(root_ / "replay/decisions.jsonl", ExitCode::data),
            read_file(root_ / "run/decisions.jsonl", ExitCode::data));
}

// The folder of the file is in its way until step 9.
TEST_F(DivergenceTest, WhatCannotBeDecidedIsTriedAgain) {
  divergence_.reaction = OnDivergence::rollback;
  divergence_.rollback_lr_factor = 0.5;
  const std::string in_the_way = root_ / "run/decisions.jsonl/folder";
  const auto hinder = [&](int64_t step) {
    if (step == 8) fs::create_directories(in_the_way);
    if (step == 9) fs::remove_all(fs::path(in_the_way).parent_path());
  };
  EXPECT_EQ(run("run", hinder), ExitCode::ok);
  EXPECT_EQ(told_.events[0], "9: 1 update skipped as a spike");
  EXPECT_TRUE(told_.events[1].starts_with("10: went back to the weights of step 5: ")) << told_.events[1];
  EXPECT_EQ(last("run").decisions[0], (checkpoint::Decision{10, run::kLearningRateFactor, 0.5}));
}

// A copy of the folder is what a run leaves that is killed.
TEST_F(DivergenceTest, ARunThatIsKilledAnywhereEndsAsTheOneThatIsNot) {
  divergence_.reaction = OnDivergence::rollback;
  divergence_.rollback_lr_factor = 0.5;
  const auto copy = [this](int64_t step) {
    fs::copy(root_ / "whole", root_ / std::to_string(step), fs::copy_options::recursive);
  };
  EXPECT_EQ(run("whole", copy), ExitCode::ok);
  for (int64_t step = 5; step < kWhole; ++step) {
    const std::string killed = std::to_string(step);
    EXPECT_EQ(run(killed), ExitCode::ok) << step;
    EXPECT_EQ(bytes(killed), bytes("whole")) << step;
    EXPECT_EQ(run::read_decisions(root_ / (killed + "/decisions.jsonl")), kDecided) << step;
  }
}

// The second spike finds the weights of the checkpoint as they were, but for what the test does to them.
TEST_F(DivergenceTest, WhatHasBeenUndoneIsNotUndoneAgain) {
  divergence_.reaction = OnDivergence::rollback;
  config_.training.schedule.max_steps = 30;
  config_.training.cadence.checkpoint_interval = {10, Interval::Unit::steps};
  spoiled_ = {12, 13};
  EXPECT_ERROR(run("run"), ExitCode::numerics,
               "step 22: 10 updates in a row had a loss or gradient that was not finite or far above the last ones");
  ASSERT_EQ(told_.events.size(), 10u);
  EXPECT_TRUE(told_.events[0].starts_with("13: went back to the weights of step 10: ")) << told_.events[0];
  for (size_t i = 1; i < 10; ++i) EXPECT_EQ(told_.events[i], fmt::format("{}: 1 update skipped as a spike", 13 + i));
}

TEST_F(DivergenceTest, OneRollbackTooManyEndsTheRun) {
  divergence_.reaction = OnDivergence::rollback;
  divergence_.max_rollbacks = 1;
  EXPECT_ERROR(run("run"), ExitCode::numerics, "after 1 rollback (training.max_rollbacks)");
  const checkpoint::Checkpoint end = last("run");
  EXPECT_EQ(end.step, 13);
  EXPECT_EQ(end.rollbacks, 1);
}

TEST_F(DivergenceTest, WithoutACheckpointToGoBackToTheRunStops) {
  divergence_.reaction = OnDivergence::rollback;
  config_.training.cadence.checkpoint_interval = {15, Interval::Unit::steps};
  EXPECT_ERROR(run("run"), ExitCode::numerics, "there is no checkpoint to go back to: the update was not applied");
  EXPECT_EQ(last("run").step, 9);
}

TEST_F(DivergenceTest, ARunThatStopsKeepsTheUpdatesBefore) {
  divergence_.reaction = OnDivergence::stop;
  EXPECT_ERROR(run("run"), ExitCode::numerics, "step 9: the gradient norm is ");
  const checkpoint::Checkpoint end = last("run");
  EXPECT_EQ(end.step, 9);
  EXPECT_EQ(end.skipped_steps, 1);
  EXPECT_EQ(end.optimizer.step_count.item<float>(), 8);
}

TEST_F(DivergenceTest, ARunThatSkipsGoesOnWithoutTheUpdate) {
  divergence_.reaction = OnDivergence::skip;
  config_.training.schedule.max_steps = 10;
  EXPECT_EQ(run("run"), ExitCode::ok);
  EXPECT_EQ(last("run").optimizer.step_count.item<float>(), 8);
  EXPECT_EQ(told_.events,
            (std::vector<std::string>{"9: 1 update skipped as a spike", "10: 1 update skipped as a spike"}));
}

}  // namespace
}  // namespace gpt::train
