#include "gpt/ops/linear.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <tuple>
#include <vector>

#include "gpt/device/precision.h"
#include "gpt/ops/aten.h"
#include "gpt/ops/tuned_product.h"
#include "support/device_cases.h"
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

const LinearCase kCases[] = {{{1}, 1, 1, true},
                             {{17}, 5, 3, true},
                             {{12, 64}, 128, 384, false},
                             {{3, 7}, 33, 65, true},
                             {{2, 3, 5}, 31, 129, false}};

using LinearFunction = at::Tensor (*)(const at::Tensor& x, const Parameter& weight, const Parameter& bias);

double max_difference(const at::Tensor& x, const at::Tensor& reference) {
  return (x.detach().cpu() - reference.detach()).abs().max().item<double>();
}

// A product of values of order one is of order sqrt(n), the largest of all a few times that.
double bound(at::ScalarType type, int64_t n) { return test::tolerance(type, n, 5 * std::sqrt(static_cast<double>(n))); }

// Output and gradients of two micro-batches against float64, where the second adds to the first.
void expect_float64_results(const LinearCase& shape, at::Device device, LinearFunction function,
                            at::ScalarType type = at::kFloat) {
  const auto& [rows, K, N, with_bias] = shape;
  std::vector<int64_t> sizes = rows;
  sizes.push_back(K);
  at::Generator generator = at::detail::createCPUGenerator(1);
  const auto draw = [&](at::IntArrayRef of) { return at::randn(of, generator).to(type).to(at::kFloat); };
  const at::Tensor weight = draw({N, K}), bias = draw({N});
  const Parameter parameter(weight.to(device, /*non_blocking=*/false, /*copy=*/true));
  const Parameter own_bias = with_bias ? Parameter(bias.to(device, false, true)) : Parameter();
  const at::Tensor exact_weight = weight.to(at::kDouble).requires_grad_(),
                   exact_bias = bias.to(at::kDouble).requires_grad_();
  int64_t M = 0;
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    const at::Tensor input = draw(sizes), x = input.to(device, false, true).requires_grad_(),
                     exact_x = input.to(at::kDouble).requires_grad_();
    at::Tensor y;
    {
      const Autocast autocast(device, type);
      y = function(x, parameter, own_bias);
    }
    const at::Tensor expected = at::linear(exact_x, exact_weight, with_bias ? exact_bias : at::Tensor());
    ASSERT_EQ(y.sizes(), expected.sizes());
    EXPECT_EQ(y.scalar_type(), type);
    const at::Tensor upstream = draw(y.sizes());
    y.backward(upstream.to(device).to(type));
    expected.backward(upstream.to(at::kDouble));
    M += y.numel() / N;
    EXPECT_LE(max_difference(y, expected), bound(type, K + 1));
    EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
    EXPECT_LE(max_difference(x.grad(), exact_x.grad()), bound(type, N));
  }
  EXPECT_LE(max_difference(parameter.gradient(), exact_weight.grad()), bound(type, M));
  EXPECT_FALSE(parameter.value().grad().defined()) << "the gradient is the parameter's own";
  if (with_bias) { EXPECT_LE(max_difference(own_bias.gradient(), exact_bias.grad()), bound(type, M)); }
}

class LinearTest : public testing::TestWithParam<std::tuple<DeviceCase, LinearCase>> {
 protected:
  void SetUp() override { GPT_SKIP_WITHOUT(std::get<0>(GetParam())); }
  at::Device device() const { return std::get<0>(GetParam()).device; }
  const LinearCase& shape() const { return std::get<1>(GetParam()); }
};

at::Tensor best_linear(const at::Tensor& x, const Parameter& weight, const Parameter& bias) {
  return linear(x, weight, bias);
}

TEST_P(LinearTest, EqualsFloat64) { expect_float64_results(shape(), device(), best_linear); }

TEST_P(LinearTest, EqualsFloat64WithinItsPrecisionUnderAutocast) {
  expect_float64_results(shape(), device(), best_linear, at::kBFloat16);
}

// On a GPU by what was measured to be the fastest, on a CPU by LibTorch, with the results that tuning asks for.
TEST_P(LinearTest, EqualsFloat64WithTunedProducts) {
  const TuneProducts tuning(true, device().type());
  for (const auto type : {at::kFloat, at::kBFloat16}) expect_float64_results(shape(), device(), best_linear, type);
}

TEST_P(LinearTest, GeluOfItIsThatOfBothInTurn) {
  const auto& [rows, K, N, with_bias] = shape();
  std::vector<int64_t> sizes = rows;
  sizes.push_back(K);
  for (const bool is_tuned : {false, true}) {
    const TuneProducts tuning(is_tuned, device().type());
    const at::Tensor values = at::randn({N, K}).to(device()), of_bias = at::randn({N}).to(device()),
                     x = at::randn(sizes).to(device()).requires_grad_();
    const Parameter weight(values), same(values.clone()), bias = with_bias ? Parameter(of_bias) : Parameter(),
                                                          same_bias = with_bias ? Parameter(of_bias.clone()) : bias;
    const at::Tensor y = linear_gelu(x, weight, bias), expected = at::gelu(linear(x, same, same_bias), "tanh");
    ASSERT_EQ(y.sizes(), expected.sizes());
    EXPECT_LE(max_difference(y, expected.cpu()), bound(at::kFloat, K + 17));
    const at::Tensor upstream = at::randn(y.sizes()).to(device());
    y.backward(upstream);
    const at::Tensor x_gradient = x.grad().clone();
    x.mutable_grad().reset();
    expected.backward(upstream);
    const int64_t M = y.numel() / N;
    EXPECT_LE(max_difference(x_gradient, x.grad().cpu()), bound(at::kFloat, N + K + 17));
    EXPECT_LE(max_difference(weight.gradient(), same.gradient().cpu()), bound(at::kFloat, M + K + 17));
    if (with_bias) {
      EXPECT_LE(max_difference(bias.gradient(), same_bias.gradient().cpu()), bound(at::kFloat, M + K + 17));
    }
  }
}

TEST_P(LinearTest, EqualsFloat64WithEitherLibrary) {
  if (!device().is_cpu()) GTEST_SKIP() << "the libraries are those of a CPU";
  expect_float64_results(shape(), device(), [](const at::Tensor& x, const Parameter& weight, const Parameter& bias) {
    return cpu::linear(x, weight, bias, cpu::MatrixLibrary::aten);
  });
  if (!cpu::onednn_works()) GTEST_SKIP() << "this processor has no AVX-512";
  expect_float64_results(shape(), device(), [](const at::Tensor& x, const Parameter& weight, const Parameter& bias) {
    return cpu::linear(x, weight, bias, cpu::MatrixLibrary::onednn);
  });
}

INSTANTIATE_TEST_SUITE_P(Devices, LinearTest, testing::Combine(testing::ValuesIn(kDevices), testing::ValuesIn(kCases)),
                         index_and_device);

TEST(Linear, TakesStridedInputsAndGradients) {
  const at::Tensor storage = at::randn({40, 3, 24}), values = at::randn({10, 24});
  for (const auto library : {cpu::MatrixLibrary::aten, cpu::MatrixLibrary::onednn}) {
    if (library == cpu::MatrixLibrary::onednn && !cpu::onednn_works()) GTEST_SKIP() << "this processor has no AVX-512";
    const Parameter weight(values.clone());
    const at::Tensor x = storage.select(1, 1).detach().requires_grad_();  // rows 72 apart
    const at::Tensor y = cpu::linear(x, weight, {}, library);
    EXPECT_LE(max_difference(y, at::linear(x, values)), test::tolerance(at::kFloat, 2 * 24, 25));
    const at::Tensor upstream = at::randn({10, 40}).t();
    y.backward(upstream);
    EXPECT_LE(max_difference(weight.gradient(), upstream.t().matmul(x.detach())),
              test::tolerance(at::kFloat, 2 * 40, 32));
    EXPECT_LE(max_difference(x.grad(), upstream.matmul(values)), test::tolerance(at::kFloat, 2 * 10, 16));
  }
}

TEST(Linear, FewRowsManyRowsAndAutocastGiveTheProductWithoutGradientsToo) {
  const at::NoGradGuard no_grad;
  const at::Tensor values = at::randn({20, 32}), of_bias = at::randn({20});
  const Parameter weight(values), bias(of_bias);
  for (const int64_t rows : {1, 100}) {
    const at::Tensor x = at::randn({rows, 32});
    EXPECT_LE(max_difference(linear(x, weight, bias), at::linear(x, values, of_bias)),
              test::tolerance(at::kFloat, 2 * 33, 30));
    const Autocast autocast(at::kCPU, at::kBFloat16);
    EXPECT_EQ(linear(x, weight, bias).scalar_type(), at::kBFloat16);
  }
}

TEST(Linear, ForTheBackwardPassAloneGivesTheSameGradientsAndNoValues) {
  const at::Tensor input = at::randn({3, 7, 32}), values = at::randn({20, 32}), upstream = at::randn({3, 7, 20});
  const auto results = [&](LinearFunction function) {
    const Parameter weight(values.clone()), bias(upstream[0][0].clone());
    const at::Tensor x = input.clone().requires_grad_();
    at::Tensor y;
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      y = function(x, weight, bias);
      y.backward(upstream);
    }
    return std::tuple(y.detach(), std::vector{x.grad(), weight.gradient(), bias.gradient()});
  };
  const auto compare = [&](LinearFunction whole, LinearFunction for_backward) {
    const auto [y, expected] = results(whole);
    const auto [zeros, got] = results(for_backward);
    EXPECT_TRUE(zeros.equal(at::zeros_like(y)));
    EXPECT_EQ(zeros.storage().nbytes(), sizeof(float));
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(got[i].equal(expected[i])) << i;
  };
  compare(best_linear, linear_for_backward);
  const auto aten_linear = [](const at::Tensor& x, const Parameter& weight, const Parameter& bias) {
    return aten::linear(x, weight, bias, ProductInput::keep);
  };
  compare(aten_linear, aten::linear_for_backward);
}

}  // namespace
}  // namespace gpt::ops
