#include "gpt/run/longer_run.h"

#include <gtest/gtest.h>

#include "core/scratch_folder.h"

namespace gpt::run {
namespace {

// A run of 100 updates, 10 of them in an epoch, whose rate decays from the 80th on; ckpt.pt is from the end.
class LongerRunTest : public testing::Test {
 protected:
  LongerRunTest() {
    ScheduleConfig& schedule = now_.training.schedule;
    schedule.lr_schedule = LrSchedule::wsd;
    schedule.max_steps = 100;
    start_.checkpoint.config = now_;
    start_.checkpoint.step = 100;
    start_.checkpoint.warmup_steps = 10;
    start_.path = root_ / checkpoint::kLastCheckpoint;
    stable_ = root_.file(checkpoint::stable_checkpoint(80), "");
    schedule.max_steps = 300;
  }
  std::optional<std::string> found() const { return checkpoint_before_decay(start_, now_.training.schedule, 10); }
  std::optional<std::string> change() const {
    return describe_rate_change(start_.checkpoint, now_.training.schedule, 10);
  }

  optim::Course course() const { return course_with(start_.checkpoint, now_.training.schedule, 10); }

  ScratchFolder root_;
  std::string stable_;
  StartingPoint start_;
  Config now_;
};

TEST_F(LongerRunTest, GoesOnFromBeforeTheDecay) {
  EXPECT_EQ(found(), stable_);
  start_.checkpoint.step = 81;
  EXPECT_EQ(found(), stable_);
  now_.training.schedule.max_steps.reset(), now_.training.schedule.epochs = 30;
  EXPECT_EQ(found(), stable_);
  root_.file(checkpoint::stable_checkpoint(70), "");
  root_.file(checkpoint::stable_checkpoint(90), "");  // of a run that was further than this one
  EXPECT_EQ(found(), stable_);
}

TEST_F(LongerRunTest, GoesOnWhereItIsUnlessTheDecayHasBegunAndBeginsLaterNow) {
  start_.checkpoint.step = 80;
  EXPECT_EQ(found(), std::nullopt) << "the decay has not begun";
  start_.checkpoint.step = 100;
  now_.training.schedule.max_steps = 100;
  EXPECT_EQ(found(), std::nullopt) << "nothing has changed";
  now_.training.schedule.max_steps = 90;
  EXPECT_EQ(found(), std::nullopt) << "it is shorter";
  now_.training.schedule.epochs = 10;
  EXPECT_EQ(found(), std::nullopt) << "as long, in epochs";
  now_.training.schedule.epochs = 30;
  now_.training.schedule.lr_schedule = LrSchedule::cosine;
  EXPECT_EQ(found(), std::nullopt);
  now_.training.schedule.lr_schedule = LrSchedule::wsd;
  EXPECT_EQ(found(), stable_);
  start_.checkpoint.config.training.schedule.lr_schedule = LrSchedule::cosine;
  EXPECT_EQ(found(), std::nullopt);
}

// Told at step 90, when its rate was decaying already, to end after 300 updates.
TEST_F(LongerRunTest, ALengthThatItWasToldHoldsUntilItsConfigurationSaysAnotherOne) {
  start_.checkpoint.step = 150;
  start_.checkpoint.course = {.planned = 100, .total = 300, .since = 90, .position = 90};
  now_.training.schedule.max_steps = 100;
  EXPECT_TRUE(has_same_length(start_.checkpoint, now_.training.schedule));
  EXPECT_EQ(course(), start_.checkpoint.course);
  EXPECT_EQ(found(), std::nullopt) << "its decay goes on";
  EXPECT_EQ(change(), std::nullopt);
  now_.training.schedule.max_time.seconds = 60;
  EXPECT_EQ(course(), optim::Course()) << "a time is another length";
  now_.training.schedule.max_time.seconds = 0;
  now_.training.schedule.max_steps = 400;
  EXPECT_FALSE(has_same_length(start_.checkpoint, now_.training.schedule));
  EXPECT_EQ(course(), optim::Course());
  EXPECT_EQ(found(), stable_);
}

// With a time, which nothing else has limited so far.
TEST_F(LongerRunTest, WhatLimitsATimedRunAnewEndsItsSchedule) {
  start_.checkpoint.course = {.planned = 1000, .total = 1000};
  ScheduleConfig& now = now_.training.schedule;
  now.max_steps.reset(), now.max_time.seconds = 600;
  start_.checkpoint.config = now_;
  EXPECT_EQ(course(), start_.checkpoint.course);
  now.max_steps = 400;
  const optim::Course limited{.planned = 1000, .total = 400, .since = 100, .position = 100};
  EXPECT_FALSE(has_same_length(start_.checkpoint, now));
  EXPECT_EQ(course(), limited);
  EXPECT_EQ(change(), std::nullopt) << "the rate does not jump";
  now.max_steps.reset(), now.epochs = 40;
  EXPECT_EQ(course(), limited);
  now.max_time.seconds = 1200;
  EXPECT_EQ(course(), (optim::Course{.planned = 2000, .total = 400, .since = 100, .position = 100}));
  now.max_time.seconds = 600, now.epochs = 200;
  EXPECT_EQ(course(), start_.checkpoint.course) << "its time ends it before that";
  now.epochs = 5;
  EXPECT_EQ(course().total, 100) << "it is beyond that";
}

TEST_F(LongerRunTest, ARunWithoutSuchACheckpointGoesOnWithAJump) {
  std::filesystem::remove(stable_);
  EXPECT_EQ(found(), std::nullopt);
  EXPECT_EQ(change(), "The learning rate of step 101 is 0.001, and would have been 1e-05 without the changes");
  start_.checkpoint.learning_rate_factor = 0.5;  // as a rollback has decided
  EXPECT_EQ(change(), "The learning rate of step 101 is 0.0005, and would have been 5e-06 without the changes");
}

TEST_F(LongerRunTest, SoDoesAWeightDecayThatFollowsTheRun) {
  const auto change = [this] { return describe_decay_change(start_.checkpoint, now_.training, 10); };
  start_.checkpoint.step = 75;
  EXPECT_EQ(change(), std::nullopt) << "it is constant";
  now_.training.optimizer.weight_decay = 0.2;
  EXPECT_EQ(change(), std::nullopt) << "constant, and the list of changes has it";
  now_.training.optimizer.weight_decay = 0.1;
  now_.training.optimizer.decay_schedule = start_.checkpoint.config.training.optimizer.decay_schedule =
      DecaySchedule::linear;
  EXPECT_EQ(change(), "The weight decay of step 76 is 0.075, and would have been 0.025 without the changes");
  now_.training.schedule.max_steps = 100;
  EXPECT_EQ(change(), std::nullopt);
  now_.training.optimizer.decay_schedule = DecaySchedule::constant;
  EXPECT_EQ(change(), "The weight decay of step 76 is 0.1, and would have been 0.025 without the changes");
  start_.checkpoint.course = {.planned = 100, .total = 150, .since = 50, .position = 50};
  EXPECT_EQ(change(), "The weight decay of step 76 is 0.1, and would have been 0.0375 without the changes");
}

TEST_F(LongerRunTest, TheWarmUpIsTheOneThatTheRunBeganWith) {
  start_.checkpoint.step = 80;
  now_.training.schedule.max_steps = 100'000;  // whose own warm-up would last 1,000 updates
  EXPECT_EQ(change(), std::nullopt);
  now_.training.schedule.warmup_steps = 1000;
  EXPECT_EQ(change(), "The learning rate of step 81 is 8.09e-05, and would have been 0.001 without the changes");
}

}  // namespace
}  // namespace gpt::run
