#include "gpt/run/forecast.h"

#include <gtest/gtest.h>

namespace gpt::run {
namespace {

Plan plan_of(int64_t total, int64_t eval_every, int64_t sample_every, int64_t checkpoint_every) {
  TrainingConfig config;
  config.schedule.max_steps = total;
  config.cadence.eval_interval = {eval_every, Interval::Unit::steps};
  config.cadence.sample_interval = {sample_every, Interval::Unit::steps};
  config.cadence.checkpoint_interval = {checkpoint_every, Interval::Unit::steps};
  return plan_run(config, 10);
}

TEST(Forecast, KnowsNothingBeforeTheFirstStep) {
  EXPECT_EQ(Forecast(plan_of(100, 10, 0, 0), 2).remaining_seconds(0), 0);
}

TEST(Forecast, CountsEverythingThatIsLeft) {
  Forecast forecast(plan_of(100, 30, 50, 40), 4);
  forecast.took(Forecast::kStep, 1);
  forecast.took(Forecast::kStep, 3);
  // At 40: 60 steps of 2 s; evaluations at 60, 90 and 100, not measured yet, of 4 steps each; a checkpoint at 80 and the last.
  EXPECT_DOUBLE_EQ(forecast.remaining_seconds(40), 60 * 2 + 3 * 4 * 2);
  forecast.took(Forecast::kEvaluation, 10);
  forecast.took(Forecast::kSample, 7);
  forecast.took(Forecast::kCheckpoint, 5);
  EXPECT_DOUBLE_EQ(forecast.remaining_seconds(40), 60 * 2 + 3 * 10 + 2 * 7 + 2 * 5);
  EXPECT_DOUBLE_EQ(forecast.remaining_seconds(99), 2 + 10 + 7 + 5);
}

TEST(Forecast, ARunThatNeverEvaluatesWaitsForNoEvaluation) {
  Forecast forecast(plan_of(100, 0, 0, 0), 4);
  forecast.took(Forecast::kStep, 1);
  EXPECT_DOUBLE_EQ(forecast.remaining_seconds(90), 10);
}

TEST(Forecast, CheckpointsByTheClockAreAsManyAsTheTrainingIsLong) {
  Plan plan = plan_of(100, 0, 0, 0);
  plan.checkpoint_seconds = 10;
  Forecast forecast(plan, 0);
  forecast.took(Forecast::kStep, 1);
  forecast.took(Forecast::kCheckpoint, 2);
  EXPECT_DOUBLE_EQ(forecast.remaining_seconds(50), 50 + (5 + 1) * 2);
}

}  // namespace
}  // namespace gpt::run
