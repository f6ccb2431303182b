#include "gpt/ops/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/tolerance.h"

namespace gpt::ops {
namespace {

// Llama's formula as it is usually written, x cos + rotate_half(x) sin, through autograd in float64.
at::Tensor reference(const at::Tensor& x, const RotaryTables& tables) {
  const at::Tensor cos = at::cat({tables.cos, tables.cos}, -1).to(at::kDouble);
  const at::Tensor sin = at::cat({tables.sin, tables.sin}, -1).to(at::kDouble);
  const auto halves = x.chunk(2, -1);
  return x * cos + at::cat({-halves[1], halves[0]}, -1) * sin;
}

TEST(Rotary, TablesHoldTheAngles) {
  const auto tables = rotary_tables(9, 6, 100.0, at::kCPU);
  ASSERT_EQ(tables.cos.sizes(), (std::vector<int64_t>{9, 1, 3}));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FLOAT_EQ(tables.cos[7][0][i].item<float>(), std::cos(7 * std::pow(100.0, -i / 3.0)));
    EXPECT_FLOAT_EQ(tables.sin[7][0][i].item<float>(), std::sin(7 * std::pow(100.0, -i / 3.0)));
  }
}

// What transformers 5.24 divides the frequencies of Llama 3.2 by (LlamaConfig, rope_type llama3); those before and behind are 1 and 32.
TEST(Rotary, FrequenciesAreScaledAsLlama3HasThem) {
  const RopeScaling scaling{.kind = RopeScalingKind::llama3, .factor = 32};
  const at::Tensor divisors = frequency_divisors(64, 500000, scaling);
  const double between[] = {1.6513291, 3.2922628, 9.6667305};
  for (int64_t i = 0; i < 32; ++i) {
    const double expected = i < 15 ? 1 : i < 18 ? between[i - 15] : 32;
    EXPECT_NEAR(divisors[i].item<double>(), expected, 1e-6 * expected) << i;
  }
  const auto plain = rotary_tables(4, 64, 500000, at::kCPU), scaled = rotary_tables(4, 64, 500000, at::kCPU, scaling);
  EXPECT_FLOAT_EQ(scaled.cos[3][0][20].item<float>(), std::cos(3 * std::pow(500000.0, -20 / 32.0) / 32));
  EXPECT_EQ(scaled.sin[3][0][2].item<float>(), plain.sin[3][0][2].item<float>());
}

TEST(Rotary, LinearScalingDividesAllFrequencies) {
  const auto tables = rotary_tables(9, 6, 100.0, at::kCPU, {.kind = RopeScalingKind::linear, .factor = 4});
  for (int i = 0; i < 3; ++i)
    EXPECT_FLOAT_EQ(tables.cos[7][0][i].item<float>(), std::cos(7 * std::pow(100.0, -i / 3.0) / 4));
}

// What transformers 5.24 divides the frequencies of OLMo 3 by (Olmo3Config, rope_type yarn), and multiplies queries and keys by.
TEST(Rotary, FrequenciesAreScaledAsYarnHasThem) {
  const RopeScaling scaling{.kind = RopeScalingKind::yarn, .factor = 8};
  const at::Tensor divisors = frequency_divisors(128, 500000, scaling);
  const double between[] = {1.0542636, 1.114754, 1.1826087, 1.2592592, 1.3465348, 1.4468085, 1.5632184, 1.6999999,
                            1.863014,  2.060606, 2.305085,  2.6153847, 3.0222224, 3.5789478, 4.3870972, 5.6666668};
  for (int64_t i = 0; i < 64; ++i) {
    const double expected = i < 19 ? 1 : i < 35 ? between[i - 19] : 8;
    EXPECT_NEAR(divisors[i].item<double>(), expected, 1e-6 * expected) << i;
  }
  const RopeScaling narrow{
      .kind = RopeScalingKind::yarn, .factor = 4, .beta_slow = 2, .beta_fast = 8, .original_length = 64};
  EXPECT_EQ(narrow.divisors(16, 10000), (std::vector<double>{1, 1.6, 4, 4, 4, 4, 4, 4}))
      << "LlamaConfig of such a file";

  const auto plain = rotary_tables(4, 128, 500000, at::kCPU), scaled = rotary_tables(4, 128, 500000, at::kCPU, scaling);
  EXPECT_FLOAT_EQ(scaled.cos[3][0][2].item<float>(), 1.2079441541679836 * plain.cos[3][0][2].item<double>());
  EXPECT_FLOAT_EQ(scaled.sin[3][0][2].item<float>(), 1.2079441541679836 * plain.sin[3][0][2].item<double>());
  EXPECT_EQ((RopeScaling{.kind = RopeScalingKind::yarn, .attention_factor = 1.5}.magnitude()), 1.5);
  EXPECT_EQ((RopeScaling{.kind = RopeScalingKind::llama3}.magnitude()), 1);
}

TEST(Rotary, ForwardAndBackwardFollowTheFormulaOnAStridedInput) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto tables = rotary_tables(5, 6, 10000.0, at::kCPU);
    const at::Tensor all = at::randn({2, 5, 4, 6}).to(dtype).requires_grad_();
    const at::Tensor exact_all = all.detach().to(at::kDouble).requires_grad_();
    const at::Tensor y = rotary(all.narrow(2, 1, 3), tables), exact = reference(exact_all.narrow(2, 1, 3), tables);
    const at::Tensor upstream = at::randn(y.sizes()).to(dtype);
    y.backward(upstream);
    exact.backward(upstream.to(at::kDouble));
    EXPECT_EQ(y.scalar_type(), dtype);
    const auto difference = [](const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); };
    const double magnitude = 2 * std::max(exact.abs().max().item<double>(), upstream.abs().max().item<double>());
    EXPECT_LE(difference(y, exact), test::tolerance(dtype, 4, magnitude));
    EXPECT_LE(difference(all.grad(), exact_all.grad()), test::tolerance(dtype, 4, magnitude));
  }
}

}  // namespace
}  // namespace gpt::ops
