#include "gpt/plan/time_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <variant>

namespace gpt::plan {
namespace {

using Status = Check::Status;

TEST(CheckTime, CountsValidationAndWhatIsLeft) {
  Config config;
  config.model.block_size = 100;
  config.training.batch_size = 10, config.training.schedule.max_steps = 1000, config.training.cadence.eval_batches = 30;
  const run::Plan plan = run::plan_run(config.training, 100);
  const StepTime step =
      step_time({.step_seconds = 0.5, .update_seconds = 0.1, .updates = 12, .batch_size = 10}, config);
  EXPECT_EQ(step.update, 0.1);
  // 1,000 steps of half a second, and two validations of 30 batches, which cost 10 steps each.
  const Check check = check_time(config, plan, 0, step, 1'000'000);
  EXPECT_EQ(check.status, Status::pass);
  EXPECT_TRUE(check.detail.starts_with(
      "2.0k tokens/s and 500 ms a step in a trial of 12 updates; 50s an epoch; 8m30s for 1,000 steps with "
      "validation, done "))
      << check.detail;
  EXPECT_NE(check_time(config, plan, 999, step, 1'000'000).detail.find("; 6s for the last 1 step"), std::string::npos);
}

TEST(CheckTime, DaysAreAWarning) {
  Config config;
  config.training.schedule.max_steps = 1'000'000;
  const StepTime step = step_time({.step_seconds = 1, .updates = 1, .batch_size = 2}, config);
  const Check check = check_time(config, run::plan_run(config.training, 100), 0, step, 0);
  EXPECT_EQ(check.status, Status::warn);
  EXPECT_NE(check.detail.find("with 2 sequences at a time"), std::string::npos) << check.detail;
  EXPECT_NE(check.detail.find("11d"), std::string::npos) << check.detail;
}

TEST(CheckTime, WithoutATrialItSaysWhy) {
  EXPECT_EQ(check_time({}, run::plan_run({}, 100), 0, std::nullopt, 0).status, Status::warn);
}

double number(const Check& check, const std::string& name) {
  const auto found =
      std::find_if(check.values.begin(), check.values.end(), [&](const auto& value) { return value.first == name; });
  return found == check.values.end() ? NAN : std::get<double>(found->second);
}

// Three epochs of 159,015 steps, 0.113 s each: 53,906 s.
struct LongRun {
  Config config;
  run::Plan plan;
  LongRun() {
    config.training.schedule.epochs = 3;
    plan = run::plan_run(config.training, 159'015);
  }
  TimeLeft left(int64_t steps_done) const {
    return time_left(config, plan, steps_done, 0.113, /*validation_tokens=*/0);
  }
};

TEST(CheckCost, ABudgetThatIsEnough) {
  const TimeLeft left = LongRun().left(0);
  EXPECT_EQ(left.steps, 477'045);
  const Check check = check_cost({.per_hour = 7, .noun = "units", .budget = 120}, left);
  EXPECT_EQ(check.status, Status::pass);
  EXPECT_EQ(check.detail, "14.97 hours at 7 units an hour: 104.8 units; the budget of 120 is enough and leaves 15.18");
  EXPECT_EQ(check.answer.text, "104.8 units of 120: enough");
  EXPECT_NEAR(number(check, "hours"), 477'045 * 0.113 / 3600, 1e-9);
  EXPECT_NEAR(number(check, "cost"), 7 * 477'045 * 0.113 / 3600, 1e-9);
}

TEST(CheckCost, ABudgetThatIsNotSaysWhatWouldBe) {
  const Check check = check_cost({.per_hour = 7, .noun = "units", .budget = 50}, LongRun().left(0));
  EXPECT_EQ(check.status, Status::fail);
  // 50 / 7 hours are 25,714 s, or 227,560 steps of 0.113 s.
  EXPECT_EQ(
      check.detail,
      "14.97 hours at 7 units an hour: 104.8 units; the budget of 50 is not enough: it pays for 227,560 of 477,045 "
      "steps");
  EXPECT_EQ(check.fix, "105 units would be enough, or set training.max_steps: 227560");
}

TEST(CheckCost, CountsWhatIsLeftOfARun) {
  const TimeLeft left = LongRun().left(459'345);  // 17,700 steps, 2,000.1 s
  EXPECT_EQ(check_cost({.per_hour = 3.5}, left).detail, "0.556 hours at 3.5 an hour: 1.94");
  const Check check = check_cost({.per_hour = 3.5, .budget = 1}, left);
  EXPECT_EQ(check.fix, "1.95 would be enough, or set training.max_steps: 468447") << "9,102 more steps";
}

TEST(CheckCost, WhatCostsNothingIsPaidForByNothing) {
  EXPECT_EQ(check_cost({.per_hour = 0, .budget = 0}, LongRun().left(0)).status, Status::pass);
  const Check check = check_cost({.per_hour = 7, .budget = 0}, LongRun().left(0));
  EXPECT_EQ(check.fix, "105 would be enough") << "and no run of 0 steps is advised";
  EXPECT_EQ(check_cost({.per_hour = 7, .budget = 0}, LongRun().left(477'045)).status, Status::pass)
      << "nothing is left";
}

}  // namespace
}  // namespace gpt::plan
