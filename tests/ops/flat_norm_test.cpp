// The norm of a long vector against ATen's in float64, on every device and with the CUDA kernels under emulation.
#include "gpt/ops/flat_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <tuple>

#include "gpt/device/random_state.h"
#include "gpt/layout/alignment.h"
#include "support/device_cases.h"
#include "support/emulated_kernels.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

class FlatNorm : public testing::TestWithParam<std::tuple<DeviceCase, at::ScalarType>> {
 protected:
  void SetUp() override {
    GPT_SKIP_WITHOUT(where());
    if (type() == at::kHalf && !takes_float16(where())) GTEST_SKIP() << "the kernels of a CPU take no float16";
    if (where().is_emulated) emulated_.emplace();
    device::seed_random_state(at::kCPU, 7);
  }

  static DeviceCase where() { return std::get<0>(GetParam()); }
  static at::ScalarType type() { return std::get<1>(GetParam()); }

  // Blocks of very different sizes.
  static at::Tensor random(int64_t blocks) {
    const at::Tensor sizes = at::randn({blocks, 1}).exp_();
    return (at::randn({blocks, layout::kParameterAlignment}) * sizes).view(-1).to(where().device, type());
  }

  std::optional<test::EmulatedKernels> emulated_;
};

TEST_P(FlatNorm, IsThatOfFloat64) {
  for (const int64_t blocks : {1, 3, 200, 1001}) {  // for one thread and several, for one CUDA block and several
    const at::Tensor values = random(blocks), norm = flat_norm(values);
    ASSERT_EQ(norm.scalar_type(), at::kFloat);
    ASSERT_EQ(norm.dim(), 0);
    ASSERT_EQ(norm.device(), values.device());
    const double exact = at::linalg_vector_norm(values.cpu().to(at::kDouble)).item<double>();
    EXPECT_NEAR(norm.item<double>(), exact, test::tolerance(at::kFloat, layout::kParameterAlignment, exact)) << blocks;
  }
}

TEST_P(FlatNorm, IsThatOfTheBlocksOfItsParts) {
  if (where().is_emulated) GTEST_SKIP() << "parts of it are computed by LibTorch on a GPU";
  for (const int64_t blocks : {2, 200, 1001}) {
    const at::Tensor values = random(blocks);
    const int64_t middle = blocks / 3 * layout::kParameterAlignment;
    const at::Tensor norms = at::cat({block_norms(values.slice(0, 0, middle)), block_norms(values.slice(0, middle))});
    ASSERT_EQ(norms.numel(), blocks);
    const float whole = flat_norm(values).item<float>(), of_blocks = norm_of_blocks(norms).item<float>();
    EXPECT_TRUE(of_blocks == whole || !where().device.is_cpu()) << blocks;
    EXPECT_NEAR(of_blocks, whole, test::tolerance(at::kFloat, layout::kParameterAlignment, whole)) << blocks;
  }
}

// Tens of millions of values, whose squares are no round numbers: a plain sum in float32 is wrong by a hundredth.
TEST_P(FlatNorm, ManyValuesAreSummedExactly) {
  const int64_t count = (int64_t{1} << 25) + layout::kParameterAlignment;
  const at::Tensor values = at::full({count}, 0.3, at::TensorOptions(where().device).dtype(type()));
  const double exact = values[0].item<double>() * std::sqrt(static_cast<double>(count));
  EXPECT_NEAR(flat_norm(values).item<double>(), exact, 1e-5 * exact);
}

TEST_P(FlatNorm, CountsEveryValueOnce) {
  const at::Tensor values = random(5);
  for (const int64_t place : {0, 7, 8, 255, 256, 1023, 1279}) {
    values.zero_();
    values[place].fill_(-3);
    EXPECT_EQ(flat_norm(values).item<float>(), 3) << place;
  }
}

TEST_P(FlatNorm, WhatIsNotFiniteStaysVisible) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {inf, -inf, std::numeric_limits<float>::quiet_NaN()}) {
    const at::Tensor values = random(4);
    values[3 * layout::kParameterAlignment + 77].fill_(bad);
    EXPECT_FALSE(std::isfinite(flat_norm(values).item<float>())) << bad;
  }
}

TEST_P(FlatNorm, RefusesPartsOfABlock) {
  EXPECT_THROW(flat_norm(random(2).slice(0, 1)), c10::Error);
  EXPECT_THROW(block_norms(random(2).slice(0, 1)), c10::Error);
  EXPECT_THROW(flat_norm(random(2).view({2, layout::kParameterAlignment}).t()), c10::Error);
}

INSTANTIATE_TEST_SUITE_P(OnDevices, FlatNorm,
                         testing::Combine(testing::ValuesIn(kDevicesAndEmulation),
                                          testing::Values(at::kFloat, at::kBFloat16, at::kHalf)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  c10::toString(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace gpt::ops
