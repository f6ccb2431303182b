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
