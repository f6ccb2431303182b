#include "gpt/optim/grad_clip.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gpt/ops/flat_norm.h"
#include "gpt/parameters/parameter_table.h"
#include "support/device_cases.h"
#include "support/tolerance.h"

namespace gpt {
namespace {

class GradClip : public DeviceTest {
 protected:
  double divisor(double norm, double max_norm) const { return clip_divisor(full({}, norm), max_norm).item<double>(); }
};

TEST_P(GradClip, NormIsThatOfAllGradientsTogether) {
  at::Tensor gradients = full({kParameterAlignment}, 0.0);
  gradients.slice(0, 0, 4).fill_(3.0);  // 36 + 28 + 36
  gradients.slice(0, 4, 11).fill_(-2.0);
  gradients[11].fill_(6.0);
  EXPECT_NEAR(ops::flat_norm(gradients).item<double>(), 10.0, test::tolerance(at::kFloat, 12, 10.0));
  EXPECT_EQ(ops::flat_norm(gradients).scalar_type(), at::kFloat);
}

// Tens of millions of values, whose squares are no round numbers: a plain sum in float32 is wrong by a hundredth.
TEST_P(GradClip, NormOfManyValuesIsExact) {
  const int64_t count = (int64_t{1} << 25) + kParameterAlignment;
  const double norm = 0.3 * std::sqrt(static_cast<double>(count));
  EXPECT_NEAR(ops::flat_norm(full({count}, 0.3)).item<double>(), norm, 1e-5 * norm);
}

TEST_P(GradClip, SixteenBitGradientsAreSummedInFloat32) {
  const at::Tensor gradient = full({400 * kParameterAlignment}, 300.0, at::kBFloat16);
  EXPECT_NEAR(ops::flat_norm(gradient).item<double>(), 300 * std::sqrt(102400.0),
              test::tolerance(at::kFloat, 102400, 1e5));
}

TEST_P(GradClip, DividesByNormOverLimitOnlyAboveTheLimit) {
  EXPECT_FLOAT_EQ(divisor(5.0, 2.0), (5.0 + 1e-6) / 2.0);
  EXPECT_EQ(divisor(1.9, 2.0), 1.0);
  EXPECT_EQ(divisor(1e9, 0.0), 1.0);  // off
}

TEST_P(GradClip, ANonFiniteNormStaysVisible) {
  at::Tensor gradients = full({1 << 21}, 1);
  gradients[(1 << 20) + 5].fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(ops::flat_norm(gradients).item<float>()));
}

INSTANTIATE_ON_DEVICES(GradClip);

}  // namespace
}  // namespace gpt
