// The norms of blocks against ATen's in float64.
#include "gpt/ops/block_norms.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <tuple>

#include "gpt/device/random_state.h"
#include "gpt/parameters/alignment.h"
#include "support/device_cases.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

class BlockNorms : public testing::TestWithParam<std::tuple<DeviceCase, at::ScalarType>> {
 protected:
  void SetUp() override {
    GPT_SKIP_WITHOUT(where());
    seed_random_state(at::kCPU, 7);
  }

  static DeviceCase where() { return std::get<0>(GetParam()); }
  static at::ScalarType type() { return std::get<1>(GetParam()); }

  // Blocks of very different sizes.
  static at::Tensor random(int64_t blocks) {
    const at::Tensor sizes = at::randn({blocks, 1}).mul_(3).exp_();
    return (at::randn({blocks, kParameterAlignment}) * sizes).view(-1).to(where().device, type());
  }
};

TEST_P(BlockNorms, AreThoseOfFloat64) {
  for (const int64_t blocks : {1, 3, 200}) {  // 200: more than one thread
    const at::Tensor values = random(blocks), norms = block_norms(values);
    ASSERT_EQ(norms.scalar_type(), at::kFloat);
    const at::Tensor exact =
        at::linalg_vector_norm(values.cpu().to(at::kDouble).view({blocks, kParameterAlignment}), 2, 1);
    const double error = ((norms.cpu().to(at::kDouble) - exact) / exact).abs().max().item<double>();
    EXPECT_LE(error, test::tolerance(at::kFloat, kParameterAlignment)) << blocks << " blocks";
  }
}

TEST_P(BlockNorms, OneValueChangesOnlyItsBlock) {
  at::Tensor values = random(4);
  values.zero_();
  values[2 * kParameterAlignment + 77].fill_(-3);
  values[3 * kParameterAlignment - 1].fill_(4);
  values[3 * kParameterAlignment].fill_(std::numeric_limits<float>::infinity());
  const at::Tensor norms = block_norms(values).cpu();
  EXPECT_EQ(norms[0].item<float>(), 0);
  EXPECT_EQ(norms[1].item<float>(), 0);
  EXPECT_EQ(norms[2].item<float>(), 5);
  EXPECT_EQ(norms[3].item<float>(), std::numeric_limits<float>::infinity());
}

TEST_P(BlockNorms, RefusesPartsOfABlock) {
  EXPECT_THROW(block_norms(random(2).slice(0, 1)), c10::Error);
  EXPECT_THROW(block_norms(random(2).view({2, kParameterAlignment}).t()), c10::Error);
}

INSTANTIATE_TEST_SUITE_P(OnDevices, BlockNorms,
                         testing::Combine(testing::ValuesIn(kDevices),
                                          testing::Values(at::kFloat, at::kBFloat16, at::kHalf)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  c10::toString(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace gpt::ops
