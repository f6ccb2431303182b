#include "gpt/optim/grad_scaler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>

namespace gpt {
namespace {

const at::Tensor kFinite = at::zeros({}), kOverflow = at::ones({});

TEST(GradScaler, ScalesTheLossAndUnscalesTheGradients) {
  GradScaler scaler(true, at::kCPU);
  EXPECT_EQ(scaler.scale(at::full({}, 2.0)).item<float>(), 131072.0f);
  std::vector<at::Tensor> gradients{at::full({3}, 65536.0), at::full({2, 2}, 131072.0)};
  EXPECT_EQ(scaler.unscale(gradients).item<float>(), 0.0f);
  EXPECT_TRUE(gradients[0].eq(1).all().item<bool>());
  EXPECT_TRUE(gradients[1].eq(2).all().item<bool>());
}

TEST(GradScaler, FindsOneNonFiniteValueAnywhere) {
  for (const bool enabled : {true, false}) {
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      GradScaler scaler(enabled, at::kCPU);
      std::vector<at::Tensor> gradients{at::ones({3}), at::ones({100})};
      EXPECT_EQ(scaler.unscale(gradients).item<float>(), 0.0f);
      gradients[1][99] = bad;
      EXPECT_EQ(scaler.unscale(gradients).item<float>(), 1.0f) << enabled << " " << bad;
    }
  }
}

TEST(GradScaler, HalvesAfterAnOverflowAndDoublesAfterTwoThousandGoodSteps) {
  GradScaler scaler(true, at::kCPU);
  for (int step = 0; step < 1999; ++step) scaler.update(kFinite);
  EXPECT_EQ(scaler.scale_value().item<float>(), 65536.0f);
  scaler.update(kOverflow);
  EXPECT_EQ(scaler.scale_value().item<float>(), 32768.0f);
  for (int step = 0; step < 1999; ++step) scaler.update(kFinite);
  EXPECT_EQ(scaler.scale_value().item<float>(), 32768.0f) << "an overflow starts the count again";
  scaler.update(kFinite);
  EXPECT_EQ(scaler.scale_value().item<float>(), 65536.0f);
  EXPECT_EQ(scaler.growth_tracker().item<int>(), 0);
}

TEST(GradScaler, StateTravels) {
  GradScaler scaler(true, at::kCPU), other(true, at::kCPU);
  scaler.update(kOverflow);
  for (int step = 0; step < 1500; ++step) scaler.update(kFinite);
  other.load(scaler.scale_value(), scaler.growth_tracker());
  for (int step = 0; step < 500; ++step) other.update(kFinite);
  EXPECT_EQ(other.scale_value().item<float>(), 65536.0f);
}

TEST(GradScaler, DisabledChangesNothing) {
  GradScaler scaler(false, at::kCPU);
  EXPECT_EQ(scaler.scale(at::full({}, 3.0)).item<float>(), 3.0f);
  std::vector<at::Tensor> gradients{at::full({2}, 0.1f)};
  scaler.update(scaler.unscale(gradients));
  EXPECT_TRUE(gradients[0].eq(at::full({2}, 0.1f)).all().item<bool>());
  EXPECT_FALSE(scaler.scale_value().defined());
}

}  // namespace
}  // namespace gpt
