#include "gpt/ops/linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <ostream>
#include <vector>

#include "gpt/device/precision.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

struct LinearCase {
  std::vector<int64_t> rows;  // the leading sizes of x
  int64_t K, N;
  bool bias;
};

// 12x64x128 to 384 without bias
void PrintTo(const LinearCase& linear, std::ostream* out) {
  for (const int64_t size : linear.rows) *out << size << "x";
  *out << linear.K << " to " << linear.N << (linear.bias ? " with bias" : " without bias");
}

class LinearTest : public testing::TestWithParam<LinearCase> {};

double max_difference(const at::Tensor& x, const at::Tensor& reference) {
  return (x - reference).abs().max().item<double>();
}

TEST_P(LinearTest, OneDnnEqualsFloat64ForwardAndBackward) {
  if (!cpu::onednn_works()) GTEST_SKIP() << "this processor has no AVX-512";
  const auto& [rows, K, N, with_bias] = GetParam();
  std::vector<int64_t> shape = rows;
  shape.push_back(K);
  std::vector<at::Tensor> inputs{at::randn(shape), at::randn({N, K}), at::randn({N})}, exact;
  for (auto& input : inputs) {
    exact.push_back(input.to(at::kDouble).requires_grad_());
    input.requires_grad_();
  }
  const auto bias = [&](const std::vector<at::Tensor>& from) { return with_bias ? from[2] : at::Tensor(); };
  const at::Tensor y = cpu::linear_onednn(inputs[0], inputs[1], bias(inputs));
  const at::Tensor expected = at::linear(exact[0], exact[1], bias(exact));
  ASSERT_EQ(y.sizes(), expected.sizes());
  const at::Tensor upstream = at::randn(y.sizes());
  y.backward(upstream);
  expected.backward(upstream.to(at::kDouble));

  // Entries are of order one, so a sum of n products is of order sqrt(n), the largest of all a few times that.
  const int64_t M = y.numel() / N;
  const auto bound = [](int64_t n) { return test::tolerance(at::kFloat, n, 5 * std::sqrt(static_cast<double>(n))); };
  EXPECT_LE(max_difference(y, expected), bound(K + 1));
  EXPECT_LE(max_difference(inputs[0].grad(), exact[0].grad()), bound(N));
  EXPECT_LE(max_difference(inputs[1].grad(), exact[1].grad()), bound(M));
  EXPECT_EQ(inputs[2].grad().defined(), with_bias);
  if (with_bias) {
    EXPECT_LE(max_difference(inputs[2].grad(), exact[2].grad()), bound(M));
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, LinearTest,
                         testing::Values(LinearCase{{1}, 1, 1, true}, LinearCase{{17}, 5, 3, true},
                                         LinearCase{{12, 64}, 128, 384, false}, LinearCase{{3, 7}, 33, 65, true},
                                         LinearCase{{2, 3, 5}, 31, 129, false}));

TEST(Linear, TakesStridedInputsAndGradients) {
  if (!cpu::onednn_works()) GTEST_SKIP() << "this processor has no AVX-512";
  const at::Tensor storage = at::randn({40, 3, 24}), weight = at::randn({10, 24}).requires_grad_();
  const at::Tensor x = storage.select(1, 1).requires_grad_();  // rows 72 apart
  const at::Tensor expected = at::linear(x, weight).detach();
  const at::Tensor y = cpu::linear_onednn(x, weight);
  EXPECT_LE(max_difference(y, expected), test::tolerance(at::kFloat, 2 * 24, 25));
  const at::Tensor upstream = at::randn({10, 40}).t();
  y.backward(upstream);
  EXPECT_LE(max_difference(weight.grad(), upstream.t().matmul(x.detach())), test::tolerance(at::kFloat, 2 * 40, 32));
  EXPECT_LE(max_difference(x.grad(), upstream.matmul(weight.detach())), test::tolerance(at::kFloat, 2 * 10, 16));
}

TEST(Linear, FewRowsManyRowsAndAutocastAllGiveTheProduct) {
  const at::Tensor weight = at::randn({20, 32}), bias = at::randn({20});
  for (const int64_t rows : {1, 100}) {
    const at::Tensor x = at::randn({rows, 32});
    EXPECT_LE(max_difference(linear(x, weight, bias), at::linear(x, weight, bias)),
              test::tolerance(at::kFloat, 2 * 33, 30));
    const Autocast autocast(at::kCPU, at::kBFloat16);
    EXPECT_EQ(linear(x, weight, bias).scalar_type(), at::kBFloat16);
  }
}

}  // namespace
}  // namespace gpt::ops
