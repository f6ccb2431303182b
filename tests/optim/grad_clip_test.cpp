#include "gpt/optim/grad_clip.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/device_cases.h"
#include "support/tolerance.h"

namespace gpt {
namespace {

class GradClip : public testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override{GPT_SKIP_WITHOUT(GetParam())} at::Tensor
      full(at::IntArrayRef shape, double value, at::ScalarType dtype = at::kFloat) const {
    return at::full(shape, value, at::TensorOptions(GetParam().device).dtype(dtype));
  }
  double divisor(double norm, double max_norm) const { return clip_divisor(full({}, norm), max_norm).item<double>(); }
};

TEST_P(GradClip, NormIsThatOfAllGradientsTogether) {
  at::Tensor gradients = full({12}, 3.0);  // 36 + 28 + 36
  gradients.slice(0, 4, 11).fill_(-2.0);
  gradients[11].fill_(6.0);
  EXPECT_NEAR(global_grad_norm(gradients).item<double>(), 10.0, test::tolerance(at::kFloat, 12, 10.0));
  EXPECT_EQ(global_grad_norm(gradients).scalar_type(), at::kFloat);
}

// Tens of millions of values: a plain sum in float32 would stop growing.
TEST_P(GradClip, NormOfManyValuesIsExact) {
  const int64_t count = (int64_t{1} << 25) + 77;
  EXPECT_NEAR(global_grad_norm(full({count}, 0.5)).item<double>(), 0.5 * std::sqrt(static_cast<double>(count)),
              1e-5 * 2896);
}

TEST_P(GradClip, SixteenBitGradientsAreSummedInFloat32) {
  const at::Tensor gradient = full({1000, 100}, 300.0, at::kHalf);  // its squares alone overflow float16
  EXPECT_NEAR(global_grad_norm(gradient).item<double>(), 300 * std::sqrt(1e5),
              test::tolerance(at::kFloat, 100000, 1e5));
}

TEST_P(GradClip, DividesByNormOverLimitOnlyAboveTheLimit) {
  EXPECT_FLOAT_EQ(divisor(5.0, 2.0), (5.0 + 1e-6) / 2.0);
  EXPECT_EQ(divisor(1.9, 2.0), 1.0);
  EXPECT_EQ(divisor(1e9, 0.0), 1.0);  // off
}

TEST_P(GradClip, ANonFiniteNormStaysVisible) {
  at::Tensor gradients = full({1 << 21}, 1);
  gradients[(1 << 20) + 5].fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(global_grad_norm(gradients).item<float>()));
}

INSTANTIATE_TEST_SUITE_P(Devices, GradClip, testing::ValuesIn(kDevices), testing::PrintToStringParamName());

}  // namespace
}  // namespace gpt
