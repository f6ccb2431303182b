// 8-bit moments against their published definition.
#include "gpt/ops/moments.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/moment_map.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

class MomentsTest : public testing::TestWithParam<MomentKind> {
 protected:
  bool is_signed() const { return GetParam() == MomentKind::first; }
  const std::vector<double> map_ = test::moment_map(is_signed());
};

TEST_P(MomentsTest, CodesStandForThePublishedValues) {
  ASSERT_EQ(map_.size(), 256);
  const QuantizedMoments all{at::arange(256).to(at::kByte), at::ones({1})};
  const at::Tensor values = dequantized(all, GetParam());
  for (int code = 0; code < 256; ++code) {
    // A line from number to value falls to a tenth of its decade's end, where its offset was up to 0.8 of it.
    EXPECT_NEAR(values[code].item<float>(), map_[code], 20 * test::unit_roundoff(at::kFloat) * std::abs(map_[code]))
        << code;
  }
  EXPECT_TRUE(quantized(values, GetParam()).codes.equal(all.codes));
}

TEST_P(MomentsTest, EveryValueBecomesTheNearest) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  const int64_t count = 256 * 200 + 77;
  // From 1e-9 of the largest to all of it, in blocks of different magnitudes.
  at::Tensor values = at::pow(10, at::rand({count}, generator) * -9);
  if (is_signed()) values = values * (at::rand({count}, generator) < 0.5).to(at::kFloat).mul(2).sub(1);
  values =
      values * at::pow(10, at::rand({count / 256 + 1}, generator) * 20 - 15).repeat_interleave(256).slice(0, 0, count);
  const QuantizedMoments moments = quantized(values, GetParam());
  ASSERT_EQ(moments.maxima.numel(), 201);
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor block = values.slice(0, i / 256 * 256, std::min(count, (i / 256 + 1) * 256));
    const auto maximum = moments.maxima[i / 256].item<float>();
    if (i % 256 == 0) { ASSERT_EQ(maximum, block.abs().max().item<float>()); }
    const double part = values[i].item<double>() / maximum;
    const int code = moments.codes[i].item<uint8_t>();
    if (!is_signed() && code == 1 && part < map_[1]) continue;  // never 0
    EXPECT_TRUE(test::is_nearest(map_, code, part, 2 * test::unit_roundoff(at::kFloat) * std::abs(part)))
        << "code " << code << " for " << part;
  }
}

TEST_P(MomentsTest, ZeroAndTheLargestAreExactAndNothingElseIsZeroInASecondMoment) {
  const at::Tensor values = at::tensor({0.0f, 3e-9f, 0.1f, 3.7f});
  const at::Tensor back = dequantized(quantized(values, GetParam()), GetParam());
  EXPECT_EQ(back[0].item<float>(), 0);
  EXPECT_EQ(back[3].item<float>(), 3.7f);
  // A second moment becomes the smallest value above 0.
  EXPECT_NEAR(back[1].item<float>(), is_signed() ? 0 : map_[1] * 3.7, 1e-12);
}

TEST_P(MomentsTest, BlocksWithoutANormalNumberAreZero) {
  for (const float value : {0.0f, std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::min() / 2}) {
    EXPECT_EQ(dequantized(quantized(at::full({300}, value), GetParam()), GetParam()).abs().sum().item<float>(), 0);
  }
  EXPECT_EQ(dequantized(quantized(at::ones({0}), GetParam()), GetParam()).numel(), 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, MomentsTest, testing::Values(MomentKind::first, MomentKind::second),
                         [](const auto& kind) { return kind.param == MomentKind::first ? "first" : "second"; });

}  // namespace
}  // namespace gpt::ops
