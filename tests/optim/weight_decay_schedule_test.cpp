#include "gpt/optim/weight_decay_schedule.h"

#include <gtest/gtest.h>

namespace gpt::optim {
namespace {

TEST(WeightDecaySchedule, GoesDownToZeroWithTheRun) {
  using enum DecaySchedule;
  for (const double progress : {0.0, 0.3, 1.0, 1.5}) EXPECT_EQ(weight_decay_share(constant, progress), 1);
  EXPECT_EQ(weight_decay_share(linear, 0), 1);
  EXPECT_DOUBLE_EQ(weight_decay_share(linear, 0.3), 0.7);
  EXPECT_EQ(weight_decay_share(linear, 1), 0);
  EXPECT_EQ(weight_decay_share(linear, 1.5), 0) << "a run that goes on after its end";
  EXPECT_EQ(weight_decay_share(cosine, 0), 1);
  EXPECT_DOUBLE_EQ(weight_decay_share(cosine, 0.25), (2 + 1.4142135623730951) / 4);
  EXPECT_DOUBLE_EQ(weight_decay_share(cosine, 0.5), 0.5);
  EXPECT_NEAR(weight_decay_share(cosine, 1), 0, 1e-15);
  EXPECT_NEAR(weight_decay_share(cosine, 1.5), 0, 1e-15);
}

TEST(WeightDecaySchedule, IsDescribedInALine) {
  OptimizerConfig config{.weight_decay = 0.1};
  EXPECT_EQ(describe_weight_decay(config), "0.1, constant");
  config.decay_schedule = DecaySchedule::linear;
  EXPECT_EQ(describe_weight_decay(config), "0.1, in a line down to 0 at the end of the run");
  config.decay_schedule = DecaySchedule::cosine;
  EXPECT_EQ(describe_weight_decay(config), "0.1, along a cosine down to 0 at the end of the run");
  config.weight_decay = 0;
  EXPECT_EQ(describe_weight_decay(config), "0, constant");
}

}  // namespace
}  // namespace gpt::optim
