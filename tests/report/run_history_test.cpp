#include "gpt/report/run_history.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gpt {
namespace {

TEST(RunHistory, KnowsTheTimeAndTheTokensOfTheSteps) {
  RunHistory history;
  const auto log = [&](int64_t step, double step_ms) {
    history.add(StepRecord{.step = step, .step_ms = step_ms, .tokens_per_second = 100, .mfu = {}});
  };
  log(500, 1000);  // a run that began from another's checkpoint, maybe at step 499
  EXPECT_EQ(history.seconds, 1);
  log(600, 250);
  EXPECT_EQ(history.seconds, 26);
  EXPECT_EQ(history.tokens, 2600);
  log(700, NAN);
  EXPECT_EQ(history.seconds, 26);
}

}  // namespace
}  // namespace gpt
