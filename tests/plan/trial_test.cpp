#include "gpt/plan/trial.h"

#include <gtest/gtest.h>

#include "plan/text_run.h"

namespace gpt::plan {
namespace {

class TryingSteps : public testing::Test, protected TextRun {
 protected:
  TryingSteps() { config_.training.batch_size = 4; }

  std::optional<Trial> attempt(double product_speed, int64_t largest_batch = 1000) {
    const DeviceInfo device = describe_device(at::kCPU);
    return try_steps({config_, corpus_, device, resolve_precision({.use_amp = false}, device)}, product_speed,
                     largest_batch, 0.2);
  }
};

TEST_F(TryingSteps, TheWholeBatchIsTakenWhereItFits) {
  const auto trial = attempt(1e12);
  ASSERT_TRUE(trial);
  EXPECT_EQ(trial->batch_size, 4);
  EXPECT_GE(trial->updates, 1);  // no more on a machine that is busy with something else
  EXPECT_GT(trial->step_seconds, 0);
}

TEST_F(TryingSteps, AccumulationMultipliesTheTime) {
  const auto one = attempt(1e12);
  config_.training.gradient_accumulation_steps =
      1'000'000;  // so many that no pause of a busy machine counts beside them
  const auto many = attempt(1e12);
  ASSERT_TRUE(one && many);
  EXPECT_GT(many->step_seconds, 100 * one->step_seconds);
}

TEST_F(TryingSteps, MemoryAndTimeLimitTheBatch) {
  config_.training.batch_size = 64;
  EXPECT_EQ(attempt(1e12, 3)->batch_size, 3);
  EXPECT_FALSE(attempt(1e3)) << "a sequence takes minutes";
}

}  // namespace
}  // namespace gpt::plan
