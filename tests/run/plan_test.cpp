#include "gpt/run/plan.h"

#include <gtest/gtest.h>

namespace gpt::run {
namespace {

TEST(Plan, LastUpdateOfAnEpochTakesWhatIsLeft) {
  TrainingConfig config;
  config.gradient_accumulation_steps = 4;
  config.schedule.epochs = 3;
  const Plan plan = plan_run(config, 10);
  EXPECT_EQ(plan.steps_per_epoch, 3);
  EXPECT_EQ(plan.total_steps, 9);
  EXPECT_EQ(plan.total_epochs(), 3);
  const int64_t expected[] = {4, 4, 2, 4, 4, 2};
  for (int64_t step = 0; step < 6; ++step) EXPECT_EQ(plan.micro_batches(step), expected[step]) << step;
}

TEST(Plan, BareIntervalsCountAsTheRunIsCounted) {
  TrainingConfig config;
  config.cadence.eval_interval = {2, Interval::Unit::run};
  config.cadence.checkpoint_interval = {7, Interval::Unit::steps};
  config.cadence.sample_interval = {1, Interval::Unit::epochs};
  config.schedule.epochs = 4;
  Plan plan = plan_run(config, 5);
  EXPECT_EQ(plan.eval_every, 10);
  EXPECT_EQ(plan.checkpoint_every, 7);
  EXPECT_EQ(plan.sample_every, 5);
  config.schedule.epochs.reset();
  config.schedule.max_steps = 42;
  plan = plan_run(config, 5);
  EXPECT_EQ(plan.eval_every, 2);
  EXPECT_EQ(plan.sample_every, 5);
  EXPECT_EQ(plan.total_steps, 42);
  EXPECT_EQ(plan.total_epochs(), 9);
}

TEST(Plan, IntervalsMayBeSharesOfTheRun) {
  TrainingConfig config;
  config.cadence.eval_interval = {10, Interval::Unit::percent};
  config.cadence.sample_interval = {0, Interval::Unit::percent};
  config.schedule.max_steps = 250;
  EXPECT_EQ(plan_run(config, 5).eval_every, 25);
  EXPECT_EQ(plan_run(config, 5).sample_every, 0);
  config.schedule.max_steps = 3;
  EXPECT_EQ(plan_run(config, 5).eval_every, 1) << "one step at least";
}

TEST(Plan, ARunOfATimeIsAsLongAsWasFoundOut) {
  TrainingConfig config;
  config.schedule.max_time = {600};
  config.cadence.eval_interval = {10, Interval::Unit::percent};
  const Plan plan = plan_run(config, 5, 700);
  EXPECT_EQ(plan.total_steps, 700);
  EXPECT_EQ(plan.eval_every, 70);
  EXPECT_GT(most_steps(config.schedule, 5), 1'000'000'000) << "nothing else limits it";
  config.schedule.epochs = 4;
  EXPECT_EQ(most_steps(config.schedule, 5), 20);
}

TEST(Plan, CheckpointsMayBeCountedInTime) {
  TrainingConfig config;
  config.cadence.checkpoint_interval = {600, Interval::Unit::seconds};
  Plan plan = plan_run(config, 5);
  EXPECT_EQ(plan.checkpoint_every, 0);
  EXPECT_EQ(plan.checkpoint_seconds, 600);
  config.cadence.checkpoint_interval = {7, Interval::Unit::steps};
  plan = plan_run(config, 5);
  EXPECT_EQ(plan.checkpoint_every, 7);
  EXPECT_EQ(plan.checkpoint_seconds, 0);
}

TEST(Plan, ZeroMeansNever) {
  EXPECT_FALSE(due(0, 0));
  EXPECT_FALSE(due(0, 10));
  EXPECT_TRUE(due(5, 10));
  EXPECT_FALSE(due(5, 11));
}

}  // namespace
}  // namespace gpt::run
