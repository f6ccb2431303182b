#include "gpt/optim/lr_schedule.h"

#include <gtest/gtest.h>

namespace gpt {
namespace {

ScheduleConfig cosine() {
  ScheduleConfig config;
  config.learning_rate = 1e-3;
  config.min_lr = 1e-4;
  config.warmup_steps = 100;
  return config;
}

TEST(LrSchedule, WarmsUpLinearlyThenFollowsTheCosine) {
  const auto config = cosine();
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 0, 2100), 1e-3 / 101);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 49, 2100), 50e-3 / 101);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 99, 2100), 100e-3 / 101);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 100, 2100), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 600, 2100), 1e-4 + 9e-4 * (2 + 1.4142135623730951) / 4);  // a quarter
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 1100, 2100), 5.5e-4);                                     // half way
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 2100, 2100), 1e-4);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 5000, 2100), 1e-4);
}

TEST(LrSchedule, ConstantKeepsTheWarmUp) {
  auto config = cosine();
  config.lr_schedule = LrSchedule::constant;
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 49, 2100), 50e-3 / 101);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 2099, 2100), 1e-3);
}

TEST(LrSchedule, AutomaticWarmUpIsAThousandStepsAtMostATenthOfTheRun) {
  ScheduleConfig config;
  EXPECT_EQ(warmup_steps(config, 50000), 1000);
  EXPECT_EQ(warmup_steps(config, 5000), 500);
  EXPECT_EQ(warmup_steps(config, 5), 0);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 0, 5), config.learning_rate);
  config.warmup_steps = 0;
  EXPECT_EQ(warmup_steps(config, 50000), 0);
}

}  // namespace
}  // namespace gpt
