#include "gpt/optim/grad_scaler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/device_cases.h"

namespace gpt {
namespace {

class GradScalerTest : public DeviceTest {
 protected:
  at::Tensor finite() const { return full({}, 0); }
  at::Tensor overflow() const { return full({}, 1); }
};

TEST_P(GradScalerTest, ScalesTheLossAndUnscalesTheGradients) {
  GradScaler scaler(true, device());
  EXPECT_EQ(scaler.scale(full({}, 2.0)).item<float>(), 131072.0f);
  const at::Tensor gradients = full({7}, 65536.0);
  EXPECT_EQ(scaler.unscale(gradients).item<float>(), 0.0f);
  EXPECT_TRUE(gradients.eq(1).all().item<bool>());
}

TEST_P(GradScalerTest, FindsOneNonFiniteValueAnywhere) {
  for (const bool enabled : {true, false}) {
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      GradScaler scaler(enabled, device());
      const at::Tensor gradients = full({103}, 1);
      EXPECT_EQ(scaler.unscale(gradients).item<float>(), 0.0f);
      gradients[102].fill_(bad);
      EXPECT_EQ(scaler.unscale(gradients).item<float>(), 1.0f) << enabled << " " << bad;
    }
  }
}

TEST_P(GradScalerTest, HalvesAfterAnOverflowAndDoublesAfterTwoThousandGoodSteps) {
  GradScaler scaler(true, device());
  for (int step = 0; step < 1999; ++step) scaler.update(finite());
  EXPECT_EQ(scaler.scale_value().item<float>(), 65536.0f);
  scaler.update(overflow());
  EXPECT_EQ(scaler.scale_value().item<float>(), 32768.0f);
  for (int step = 0; step < 1999; ++step) scaler.update(finite());
  EXPECT_EQ(scaler.scale_value().item<float>(), 32768.0f) << "an overflow starts the count again";
  scaler.update(finite());
  EXPECT_EQ(scaler.scale_value().item<float>(), 65536.0f);
  EXPECT_EQ(scaler.growth_tracker().item<int>(), 0);
}

TEST_P(GradScalerTest, StateTravels) {
  GradScaler scaler(true, device()), other(true, device());
  scaler.update(overflow());
  for (int step = 0; step < 1500; ++step) scaler.update(finite());
  other.load(scaler.scale_value(), scaler.growth_tracker());
  for (int step = 0; step < 500; ++step) other.update(finite());
  EXPECT_EQ(other.scale_value().item<float>(), 65536.0f);
}

TEST_P(GradScalerTest, DisabledChangesNothing) {
  GradScaler scaler(false, device());
  EXPECT_EQ(scaler.scale(full({}, 3.0)).item<float>(), 3.0f);
  const at::Tensor gradients = full({2}, 0.1f);
  scaler.update(scaler.unscale(gradients));
  EXPECT_TRUE(gradients.eq(full({2}, 0.1f)).all().item<bool>());
  EXPECT_FALSE(scaler.scale_value().defined());
}

INSTANTIATE_ON_DEVICES(GradScalerTest);

}  // namespace
}  // namespace gpt
