#include "gpt/train/efficiency.h"

#include <gtest/gtest.h>

#include "gpt/plan/limits.h"
#include "train/tiny_run.h"

namespace gpt::train {
namespace {

run::Setup tiny_setup() {
  const data::Corpus corpus = some_corpus();
  return {.config = tiny_config(corpus), .corpus = corpus, .device = {}, .precision = {}};
}

// 60 tokens a step: the epochs end with short batches.
constexpr report::TimingRecord kSteps{.steps = 100, .tokens = 6000, .seconds = 50};

TEST(Efficiency, IsMeasuredOnlyWhereHalfASecondIsNotFelt) {
  const run::Setup setup = tiny_setup();
  EXPECT_FALSE(EfficiencyMeter(setup).measure(kSteps, /*run_seconds=*/29.9));
  EXPECT_TRUE(EfficiencyMeter(setup).measure(kSteps, 30));
  EXPECT_FALSE(EfficiencyMeter(setup).measure({}, 60)) << "it ended within the steps that settle";
}

TEST(Efficiency, IsThatOfTheStepsAsTheyWere) {
  const run::Setup setup = tiny_setup();
  EfficiencyMeter meter(setup);
  EXPECT_FALSE(meter.of(kSteps)) << "nothing has been measured";
  const auto efficiency = meter.measure(kSteps, 60);
  ASSERT_TRUE(efficiency);
  EXPECT_EQ(efficiency->step_ms, 500);
  const plan::MachineSpeed speed{efficiency->peak_flops, efficiency->copy_bytes_per_second};
  const auto work = plan::work_of_step(setup.config.model, setup.config.training, setup.precision, /*tokens=*/60);
  EXPECT_DOUBLE_EQ(efficiency->least_ms, 1000 * plan::least_seconds(work, speed));
  EXPECT_DOUBLE_EQ(efficiency->share(), efficiency->least_ms / 500);
  EXPECT_EQ(meter.of(kSteps)->share(), efficiency->share());
  EXPECT_FALSE(meter.of({}));
}

}  // namespace
}  // namespace gpt::train
