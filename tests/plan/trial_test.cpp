#include "gpt/plan/trial.h"

#include <gtest/gtest.h>

#include <map>

#include "plan/text_run.h"

namespace gpt::plan {
namespace {

class TryingSteps : public testing::Test, protected TextRun {
 protected:
  TryingSteps() { config_.training.batch_size = 4; }

  std::optional<Trial> attempt(double product_speed, int64_t largest_batch = 1000) {
    const device::DeviceInfo device = device::describe_device(at::kCPU);
    return try_steps({config_, corpus_, device, device::resolve_precision({.use_amp = false}, device)}, product_speed,
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

// A machine with a clock of its own: an update takes 0.25 s and a micro-batch `micro_step`; the first of each kind take ten times as
// long, and others run every seventh time.
Trial time_made_up_updates(const TrainingConfig& training, int64_t batch_size, double micro_step) {
  double clock = 1000;
  std::map<int64_t, int64_t> made;  // of so many micro-batches
  const auto update = [&](int64_t micro_batches) {
    const int64_t before = made[micro_batches]++;
    clock += (0.25 + static_cast<double>(micro_batches) * micro_step) * (before < 2 || before % 7 == 0 ? 10 : 1);
  };
  return time_updates(training, batch_size, /*warm_up=*/2, /*seconds=*/60, update, [&] { return clock; });
}

TEST(TimeOfAnUpdate, IsThatOfAllItsSequences) {
  TrainingConfig training;
  training.batch_size = 8;
  EXPECT_DOUBLE_EQ(time_made_up_updates(training, 8, 0.5).step_seconds, 0.75);
  EXPECT_EQ(time_made_up_updates(training, 8, 0.5).update_seconds, 0) << "which is not known";
  training.gradient_accumulation_steps = 5;  // 0.25 s once, and ten times two micro-batches of 2
  EXPECT_DOUBLE_EQ(time_made_up_updates(training, 2, 0.5).step_seconds, 0.25 + 5 * 4 * 0.5);
  EXPECT_DOUBLE_EQ(time_made_up_updates(training, 8, 0.5).step_seconds, 0.25 + 5 * 0.5);
  EXPECT_EQ(time_made_up_updates(training, 2, 0.5).batch_size, 2);
  EXPECT_DOUBLE_EQ(time_made_up_updates(training, 2, 0.5).update_seconds, 0.25);
}

TEST_F(TryingSteps, MemoryAndTimeLimitTheBatch) {
  config_.training.batch_size = 64;
  EXPECT_EQ(attempt(1e12, 3)->batch_size, 3);
  EXPECT_FALSE(attempt(1e3)) << "a sequence takes minutes";
  EXPECT_EQ(attempt(1e8)->batch_size, 1) << "which takes longer than wished, rather than nothing";
}

}  // namespace
}  // namespace gpt::plan
