#include "gpt/optim/grad_clip.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/tolerance.h"

namespace gpt {
namespace {

double divisor(double norm, double max_norm) {
  return clip_divisor(at::full({}, norm, at::kFloat), max_norm).item<double>();
}

TEST(GradClip, NormIsThatOfAllGradientsTogether) {
  const std::vector<at::Tensor> gradients{at::full({2, 2}, 3.0), at::full({7}, -2.0), at::full({}, 6.0)};
  EXPECT_NEAR(global_grad_norm(gradients).item<double>(), 10.0, test::tolerance(at::kFloat, 12, 10.0));  // 36 + 28 + 36
  EXPECT_EQ(global_grad_norm(gradients).scalar_type(), at::kFloat);
}

TEST(GradClip, SixteenBitGradientsAreSummedInFloat32) {
  const at::Tensor gradient = at::full({1000, 100}, 300.0, at::kHalf);  // its squares alone overflow float16
  EXPECT_NEAR(global_grad_norm({gradient}).item<double>(), 300 * std::sqrt(1e5),
              test::tolerance(at::kFloat, 100000, 1e5));
}

TEST(GradClip, DividesByNormOverLimitOnlyAboveTheLimit) {
  EXPECT_FLOAT_EQ(divisor(5.0, 2.0), (5.0 + 1e-6) / 2.0);
  EXPECT_EQ(divisor(1.9, 2.0), 1.0);
  EXPECT_EQ(divisor(1e9, 0.0), 1.0);  // off
}

TEST(GradClip, ANonFiniteNormStaysVisible) {
  const at::Tensor bad = at::full({3}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(global_grad_norm({at::ones({4}), bad}).item<float>()));
}

}  // namespace
}  // namespace gpt
