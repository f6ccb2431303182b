#include "gpt/optim/grad_scaler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/device_cases.h"

namespace gpt::optim {
namespace {

class GradScalerTest : public DeviceTest {
 protected:
  at::Tensor finite() const { return full({}, 0.5); }
  at::Tensor overflow() const { return full({}, std::numeric_limits<double>::infinity()); }
};

TEST_P(GradScalerTest, Scales) {
  const GradScaler scaler(true, device());
  EXPECT_EQ(scaler.scale(full({}, 2.0)).item<float>(), 131072.0f);
}

TEST_P(GradScalerTest, ANormThatIsNoNumberIsAnOverflowToo) {
  GradScaler scaler(true, device());
  scaler.update(full({}, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(scaler.scale_value().item<float>(), 32768.0f);
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
  scaler.update(overflow());
  EXPECT_FALSE(scaler.scale_value().defined());
}

INSTANTIATE_ON_DEVICES(GradScalerTest);

}  // namespace
}  // namespace gpt::optim
