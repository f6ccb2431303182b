#include "gpt/ops/linear.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <ostream>
#include <tuple>
#include <vector>

#include "gpt/device/precision.h"
#include "gpt/ops/aten.h"
#include "gpt/ops/tuned_product.h"
#include "support/device_cases.h"
#include "support/emulated_kernels.h"
#include "support/parameter_of.h"
#include "support/restore_context.h"
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

// Odd sizes, and those of whole vectors, of which alone the kernels of a GPU sum the gradient of a bias.
const LinearCase kCases[] = {{{1}, 1, 1, true},      {{17}, 5, 3, true},          {{12, 64}, 128, 384, false},
                             {{3, 7}, 33, 65, true}, {{2, 3, 5}, 31, 129, false}, {{5, 13}, 24, 64, true}};

// What the products and the parameters are of.
struct Form {
  const char* name;
  at::ScalarType type;  // of the products
  bool has_autocast;
  ParameterTypes parameters;
};

const Form kFloat32{"float32", at::kFloat, false, {}};
const Form kForms[] = {kFloat32,
                       {"autocast to bfloat16", at::kBFloat16, true, {}},
                       {"autocast to float16", at::kHalf, true, {}},
                       {"end to end", at::kBFloat16, false, {at::kBFloat16}},
                       {"with gradients of 16 bits", at::kBFloat16, false, {at::kBFloat16, true, at::kBFloat16}},
                       {"without a master", at::kBFloat16, false, {at::kBFloat16, false, at::kBFloat16}}};

using LinearFunction = at::Tensor (*)(const at::Tensor& x, const Parameter& weight, const Parameter& bias);

double max_difference(const at::Tensor& x, const at::Tensor& reference) {
  return (x.detach().cpu() - reference.detach()).abs().max().item<double>();
}

// Of a sum of n products of values of order one, which is of order sqrt(n), the largest of all a few times that.
double in_sum(int64_t n) { return test::tolerance(at::kFloat, n, 5 * std::sqrt(static_cast<double>(n))); }

void expect_within(const at::Tensor& result, const at::Tensor& exact, const at::Tensor& bound, const char* what) {
  const at::Tensor error = (result.detach().cpu().to(at::kDouble).reshape(exact.sizes()) - exact.detach()).abs();
  EXPECT_TRUE((error <= bound.detach()).all().item<bool>())
      << what << ": " << (error / bound.detach()).nan_to_num(0).max().item<double>() << " times the bound";
}

// Rows that go through the product, and GELU of it if `has_gelu`, in float64; and how far results may be from that. Sums are float32.
// 16 bits round what an operator gives: the product once without and once with its bias.
struct Reference {
  at::Tensor y, x_gradient, weight_gradient, bias_gradient;  // (M, N), (M, K), (N, K), (N)
  at::Tensor y_bound, x_bound, weight_bound, bias_bound;

  Reference(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& upstream,
            bool has_gelu, at::ScalarType type) {
    const double rounding = type == at::kFloat ? 0 : test::unit_roundoff(type);
    const int64_t M = x.size(0), K = x.size(1), N = weight.size(0);
    const at::Tensor product = at::linear(x, weight, bias).requires_grad_();
    at::Tensor product_bound = product.detach().abs() * 2 * rounding + in_sum(K + 1), gradient = upstream,
               gradient_bound = at::zeros_like(upstream);
    y = product.detach(), y_bound = product_bound;
    if (has_gelu) {
      const at::Tensor gelu = at::gelu(product, "tanh");
      gelu.backward(upstream);
      y = gelu.detach(), gradient = product.grad();
      // Its slope is at most 1.13, the slope of that 0.8, and there are some sixteen roundings of float32 around them.
      const double around = 16 * test::unit_roundoff(at::kFloat);
      y_bound = 1.13 * product_bound + around * product.detach().abs() + rounding * y.abs();
      gradient_bound = upstream.abs() * (0.8 * product_bound + around) + rounding * gradient.abs();
    }
    x_gradient = gradient.matmul(weight);
    weight_gradient = gradient.t().matmul(x);
    bias_gradient = gradient.sum(0);
    x_bound = gradient_bound.matmul(weight.abs()) + in_sum(N) + rounding * x_gradient.abs();
    weight_bound = gradient_bound.t().matmul(x.abs()) + in_sum(M) + rounding * weight_gradient.abs();
    bias_bound = gradient_bound.sum(0) + in_sum(M) + rounding * bias_gradient.abs();
  }
};

// Output and gradients of two micro-batches against float64, where the second adds to the first.
void expect_float64_results(const LinearCase& shape, at::Device device, LinearFunction function, const Form& form,
                            bool has_gelu = false) {
  SCOPED_TRACE(form.name);
  const auto& [rows, K, N, with_bias] = shape;
  std::vector<int64_t> sizes = rows;
  sizes.push_back(K);
  at::Generator generator = at::detail::createCPUGenerator(1);
  const auto draw = [&](at::IntArrayRef of) { return at::randn(of, generator).to(form.type).to(at::kFloat); };
  const auto parameter_of = [&](const at::Tensor& value) {
    return test::parameter_of(value.to(device, /*non_blocking=*/false, /*copy=*/true), form.parameters);
  };
  const at::Tensor of_weight = draw({N, K}), of_bias = draw({N});
  const Parameter weight = parameter_of(of_weight), bias = with_bias ? parameter_of(of_bias) : Parameter();
  const at::ScalarType activations = form.has_autocast ? at::kFloat : form.type;
  at::Tensor weight_gradient = at::zeros({N, K}, at::kDouble), weight_bound = weight_gradient,
             bias_gradient = at::zeros({N}, at::kDouble), bias_bound = bias_gradient;
  // A gradient is rounded to its own type whenever something has been added to it.
  const double rounding = form.parameters.gradient == at::kFloat ? 0 : test::unit_roundoff(form.parameters.gradient);
  const auto add = [rounding](at::Tensor& sum, at::Tensor& bound, const at::Tensor& term, const at::Tensor& its_bound) {
    sum = sum + term;
    bound = bound + its_bound + rounding * sum.abs();
  };
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    const at::Tensor input = draw(sizes), x = input.to(device, activations, false, true).requires_grad_();
    at::Tensor y;
    {
      const Autocast autocast(device, form.has_autocast ? form.type : at::kFloat);
      y = function(x, weight, bias);
    }
    ASSERT_EQ(y.numel() / N, input.numel() / K);
    EXPECT_EQ(y.scalar_type(), form.type);
    const at::Tensor upstream = draw(y.sizes());
    y.backward(upstream.to(device).to(form.type));
    const auto exact = [](const at::Tensor& value) { return value.reshape({-1, value.size(-1)}).to(at::kDouble); };
    const Reference reference(exact(input), exact(of_weight), with_bias ? of_bias.to(at::kDouble) : at::Tensor(),
                              exact(upstream), has_gelu, form.type);
    expect_within(y, reference.y, reference.y_bound, "y");
    EXPECT_EQ(x.grad().scalar_type(), activations);
    expect_within(x.grad(), reference.x_gradient, reference.x_bound, "gradient of x");
    add(weight_gradient, weight_bound, reference.weight_gradient, reference.weight_bound);
    add(bias_gradient, bias_bound, reference.bias_gradient, reference.bias_bound);
    expect_within(weight.gradient(), weight_gradient, weight_bound, "gradient of the weight");
    if (with_bias) expect_within(bias.gradient(), bias_gradient, bias_bound, "gradient of the bias");
  }
  EXPECT_EQ(weight.gradient().scalar_type(), form.parameters.gradient);
  EXPECT_FALSE(weight.value().grad().defined()) << "the gradient is the parameter's own";
}

at::Tensor best_linear(const at::Tensor& x, const Parameter& weight, const Parameter& bias) {
  return linear(x, weight, bias);
}

at::Tensor best_linear_gelu(const at::Tensor& x, const Parameter& weight, const Parameter& bias) {
  return linear_gelu(x, weight, bias);
}

class LinearTest : public testing::TestWithParam<std::tuple<DeviceCase, LinearCase>> {
 protected:
  void SetUp() override {
    GPT_SKIP_WITHOUT(where());
    apply_precision({}, /*deterministic=*/false);  // sums are float32 in cuBLAS too
    if (where().is_emulated) emulated_.emplace();
  }
  const DeviceCase& where() const { return std::get<0>(GetParam()); }
  at::Device device() const { return where().device; }
  const LinearCase& shape() const { return std::get<1>(GetParam()); }

  // GELU's gradient is written by a kernel of ours, which on a GPU sums it for the bias too.
  void expect_gelu_of_float64() const {
    for (const Form& form : kForms) {
      if (form.type == at::kHalf && !takes_float16(where())) continue;
      expect_float64_results(shape(), device(), best_linear_gelu, form, /*has_gelu=*/true);
    }
  }

  RestoreContext restore_;
  std::optional<test::EmulatedKernels> emulated_;
};

TEST_P(LinearTest, EqualsFloat64) {
  for (const Form& form : kForms) expect_float64_results(shape(), device(), best_linear, form);
}

TEST_P(LinearTest, GeluOfItEqualsFloat64) { expect_gelu_of_float64(); }

// On a GPU by what was measured to be the fastest, on a CPU by LibTorch, with the results that tuning asks for.
TEST_P(LinearTest, EqualsFloat64WithTunedProducts) {
  const TuneProducts tuning(true, device().type());
  for (const Form& form : kForms) expect_float64_results(shape(), device(), best_linear, form);
  expect_gelu_of_float64();
}

TEST_P(LinearTest, EqualsFloat64WithEitherLibrary) {
  if (!device().is_cpu() || where().is_emulated) GTEST_SKIP() << "the libraries are those of a CPU";
  expect_float64_results(
      shape(), device(),
      [](const at::Tensor& x, const Parameter& weight, const Parameter& bias) {
        return cpu::linear(x, weight, bias, cpu::MatrixLibrary::aten);
      },
      kFloat32);
  if (!cpu::onednn_works()) GTEST_SKIP() << "this processor has no AVX-512";
  expect_float64_results(
      shape(), device(),
      [](const at::Tensor& x, const Parameter& weight, const Parameter& bias) {
        return cpu::linear(x, weight, bias, cpu::MatrixLibrary::onednn);
      },
      kFloat32);
}

INSTANTIATE_TEST_SUITE_P(Devices, LinearTest,
                         testing::Combine(testing::ValuesIn(kDevicesAndEmulation), testing::ValuesIn(kCases)),
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
