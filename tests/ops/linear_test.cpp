#include "gpt/ops/linear.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "gpt/device/precision.h"
#include "gpt/ops/activation.h"
#include "gpt/ops/norm.h"
#include "gpt/ops/operator_sets.h"
#include "gpt/products/tuned_product.h"
#include "src/ops/kernels.h"
#include "support/device_cases.h"
#include "support/emulated_kernels.h"
#include "support/parameter_of.h"
#include "support/restore_context.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {
using parameters::Parameter;

struct LinearCase {
  std::vector<int64_t> rows;  // the leading sizes of x
  int64_t K, N;
  bool bias;
};

// 3x64x128 to 384 without bias
void PrintTo(const LinearCase& linear, std::ostream* out) {
  for (const int64_t size : linear.rows) *out << size << "x";
  *out << linear.K << " to " << linear.N << (linear.bias ? " with bias" : " without bias");
}

// Odd sizes, and those of whole vectors, of which alone the kernels of a GPU sum the gradient of a bias.
const LinearCase kLinearCases[] = {{{1}, 1, 1, true},      {{17}, 5, 3, true},          {{3, 64}, 128, 384, false},
                                   {{3, 7}, 33, 65, true}, {{2, 3, 5}, 31, 129, false}, {{5, 13}, 24, 64, true}};

// What the products and the parameters are of.
struct Form {
  const char* name;
  at::ScalarType type;  // the type of the products
  bool has_autocast;
  parameters::ParameterTypes parameters;
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

// The tolerance for a sum of n products of values of order one, which is of order sqrt(n), the largest of all a few times that.
double in_sum(int64_t n) { return test::tolerance(at::kFloat, n, 5 * std::sqrt(static_cast<double>(n))); }

void expect_within(const at::Tensor& result, const at::Tensor& exact, const at::Tensor& bound, const char* what) {
  const at::Tensor error = (result.detach().cpu().to(at::kDouble).reshape(exact.sizes()) - exact.detach()).abs();
  EXPECT_TRUE((error <= bound.detach()).all().item<bool>())
      << what << ": " << (error / bound.detach()).nan_to_num(0).max().item<double>() << " times the bound";
}

double rounding_of(at::ScalarType type) { return type == at::kFloat ? 0 : test::unit_roundoff(type); }

using Then = std::optional<Activation>;  // what the product goes through
// Rows that go through the product, and an activation of it if there is one, in float64; and how far results may be from that. Sums are float32.
// 16 bits round what an operator gives: the product once without and once with its bias.
struct LinearReference {
  at::Tensor y, x_gradient, weight_gradient, bias_gradient;  // (M, N), (M, K), (N, K), (N)
  at::Tensor y_bound, x_bound, weight_bound, bias_bound;

  LinearReference(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& upstream,
                  Then then, at::ScalarType type) {
    const double rounding = rounding_of(type);
    const int64_t M = x.size(0), K = x.size(1), N = weight.size(0);
    const at::Tensor product = at::linear(x, weight, bias).requires_grad_();
    at::Tensor product_bound = product.detach().abs() * 2 * rounding + in_sum(K + 1), gradient = upstream,
               gradient_bound = at::zeros_like(upstream);
    y = product.detach(), y_bound = product_bound;
    if (then) {
      const bool is_gelu = then == Activation::gelu;
      const at::Tensor activated = is_gelu ? at::gelu(product, "tanh") : product.relu().square();
      activated.backward(upstream), y = activated.detach(), gradient = product.grad();
      // Slopes are at most 1.13, and theirs 0.8, or of the square of ReLU twice the product and 2. Some sixteen roundings are around them.
      const double around = 16 * test::unit_roundoff(at::kFloat), curve = is_gelu ? 0.8 : 2;
      const at::Tensor most = product.detach().abs(),
                       slope = is_gelu ? at::zeros_like(most) + 1.13 : 2 * (most + product_bound);
      y_bound = slope * product_bound + around * (is_gelu ? most : most.square()) + rounding * y.abs();
      gradient_bound = upstream.abs() * (curve * product_bound + around * slope) + rounding * gradient.abs();
    }
    x_gradient = gradient.matmul(weight);
    weight_gradient = gradient.t().matmul(x);
    bias_gradient = gradient.sum(0);
    x_bound = gradient_bound.matmul(weight.abs()) + in_sum(N) + rounding * x_gradient.abs();
    weight_bound = gradient_bound.t().matmul(x.abs()) + in_sum(M) + rounding * weight_gradient.abs();
    bias_bound = gradient_bound.sum(0) + in_sum(M) + rounding * bias_gradient.abs();
  }
};

// Layers that take the same input, of these many columns; what their function gives, in their order.
using LinearResults = std::vector<at::Tensor>;
using LayersFunction = std::function<LinearResults(const at::Tensor& x, const std::vector<LinearLayer>& layers)>;

// A layer, and what its gradients must be after all micro-batches so far.
struct CheckedLayer {
  at::Tensor of_weight, of_bias;  // float32
  LinearLayer parameters;
  at::Tensor weight_gradient, weight_bound, bias_gradient, bias_bound;

  // A gradient is rounded to its own type whenever something has been added to it.
  void add(const LinearReference& reference, double rounding) {
    const auto add = [rounding](at::Tensor& sum, at::Tensor& bound, const at::Tensor& term, const at::Tensor& of_term) {
      sum = sum.defined() ? sum + term : term;
      bound = (bound.defined() ? bound + of_term : of_term) + rounding * sum.abs();
    };
    add(weight_gradient, weight_bound, reference.weight_gradient, reference.weight_bound);
    add(bias_gradient, bias_bound, reference.bias_gradient, reference.bias_bound);
  }

  void expect_gradients(at::ScalarType type) const {
    const auto& [weight, bias, site, adapter] = parameters;
    expect_within(weight.gradient(), weight_gradient, weight_bound, "gradient of the weight");
    if (bias.defined()) expect_within(bias.gradient(), bias_gradient, bias_bound, "gradient of the bias");
    EXPECT_EQ(weight.gradient().scalar_type(), type);
    EXPECT_FALSE(weight.value().grad().defined()) << "the gradient is the parameter's own";
  }
};

// Outputs and gradients of two micro-batches against float64, where the second adds to the first. The layers have N columns of
// shape, then 2 N and so on.
void expect_float64_results(const LinearCase& shape, at::Device device, size_t layer_count,
                            const LayersFunction& function, const Form& form, Then then = {}) {
  SCOPED_TRACE(form.name);
  const auto& [rows, K, N, with_bias] = shape;
  std::vector<int64_t> sizes = rows;
  sizes.push_back(K);
  at::Generator generator = at::detail::createCPUGenerator(1);
  const auto draw = [&](at::IntArrayRef of) { return at::randn(of, generator).to(form.type).to(at::kFloat); };
  const auto parameter_of = [&](const at::Tensor& value) {
    return test::parameter_of(value.to(device, /*non_blocking=*/false, /*copy=*/true), form.parameters);
  };
  std::vector<CheckedLayer> layers(layer_count);
  std::vector<LinearLayer> parameters;
  for (CheckedLayer& layer : layers) {
    const int64_t columns = (std::ssize(parameters) + 1) * N;
    layer.of_weight = draw({columns, K}), layer.of_bias = draw({columns});
    layer.parameters = {parameter_of(layer.of_weight), with_bias ? parameter_of(layer.of_bias) : Parameter()};
    parameters.push_back(layer.parameters);
  }
  const auto exact = [](const at::Tensor& value) { return value.reshape({-1, value.size(-1)}).to(at::kDouble); };
  const at::ScalarType activations = form.has_autocast ? at::kFloat : form.type;
  const at::ScalarType gradients = form.parameters.gradient;
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    const at::Tensor input = draw(sizes), x = input.to(device, activations, false, true).requires_grad_();
    LinearResults results;
    {
      const device::Autocast autocast(device, form.has_autocast ? form.type : at::kFloat);
      results = function(x, parameters);
    }
    LinearResults upstream;
    at::Tensor x_gradient = at::zeros({input.numel() / K, K}, at::kDouble), x_bound = x_gradient;
    for (size_t i = 0; i < layer_count; ++i) {
      CheckedLayer& layer = layers[i];
      const at::Tensor &y = results[i], of_y = draw(y.sizes());
      ASSERT_EQ(y.numel() / layer.of_bias.numel(), input.numel() / K);
      EXPECT_EQ(y.scalar_type(), form.type);
      upstream.push_back(of_y.to(device).to(form.type));
      const LinearReference reference(exact(input), exact(layer.of_weight),
                                      with_bias ? layer.of_bias.to(at::kDouble) : at::Tensor(), exact(of_y), then,
                                      form.type);
      expect_within(y, reference.y, reference.y_bound, "y");
      layer.add(reference, rounding_of(gradients));
      x_gradient = x_gradient + reference.x_gradient;
      // What the layers before gave is rounded, and then the sum.
      x_bound = x_bound + reference.x_bound + (i > 0 ? rounding_of(form.type) * x_gradient.abs() : at::zeros({}));
    }
    torch::autograd::backward(results, upstream);
    EXPECT_EQ(x.grad().scalar_type(), activations);
    expect_within(x.grad(), x_gradient, x_bound, "gradient of x");
    for (const CheckedLayer& layer : layers) layer.expect_gradients(gradients);
  }
}

void expect_float64_results(const LinearCase& shape, at::Device device, LinearFunction function, const Form& form,
                            Then then = {}) {
  const auto one = [function](const at::Tensor& x, const std::vector<LinearLayer>& layers) {
    return LinearResults{function(x, layers[0].weight, layers[0].bias)};
  };
  expect_float64_results(shape, device, 1, one, form, then);
}

at::Tensor best_linear(const at::Tensor& x, const Parameter& weight, const Parameter& bias) {
  return linear(x, weight, bias);
}

template <Activation activation>
at::Tensor best_linear_activated(const at::Tensor& x, const Parameter& weight, const Parameter& bias) {
  return linear_activated(activation, x, {weight, bias});
}

LinearResults best_linear_pair(const at::Tensor& x, const std::vector<LinearLayer>& layers) {
  const auto [first, second] = linear_pair(x, layers[0], layers[1]);
  return {first, second};
}

class LinearTest : public testing::TestWithParam<std::tuple<DeviceCase, LinearCase>> {
 protected:
  void SetUp() override {
    GPT_SKIP_WITHOUT(where());
    device::apply_precision({}, /*deterministic=*/false);  // sums are float32 in cuBLAS too
    if (where().is_emulated) emulated_.emplace();
  }
  const DeviceCase& where() const { return std::get<0>(GetParam()); }
  at::Device device() const { return where().device; }
  const LinearCase& shape() const { return std::get<1>(GetParam()); }

  // An activation's gradient is written by a kernel of ours, which on a GPU sums it for the bias too.
  void expect_activated_of_float64() const {
    for (const Form& form : kForms) {
      if (form.type == at::kHalf && !takes_float16(where())) continue;
      expect_float64_results(shape(), device(), best_linear_activated<Activation::gelu>, form, Activation::gelu);
      expect_float64_results(shape(), device(), best_linear_activated<Activation::relu2>, form, Activation::relu2);
    }
  }

  void expect_pair_of_float64() const {
    for (const Form& form : kForms) expect_float64_results(shape(), device(), 2, best_linear_pair, form);
  }

  RestoreContext restore_;
  std::optional<test::EmulatedKernels> emulated_;
};

TEST_P(LinearTest, EqualsFloat64) {
  for (const Form& form : kForms) expect_float64_results(shape(), device(), best_linear, form);
}

TEST_P(LinearTest, AnActivationOfItEqualsFloat64) { expect_activated_of_float64(); }
TEST_P(LinearTest, APairEqualsFloat64) { expect_pair_of_float64(); }

// On a GPU by what was measured to be the fastest, on a CPU by LibTorch, with the results that tuning asks for.
TEST_P(LinearTest, EqualsFloat64WithTunedProducts) {
  const TuneProducts tuning(true, device().type());
  for (const Form& form : kForms) expect_float64_results(shape(), device(), best_linear, form);
  expect_activated_of_float64();
  expect_pair_of_float64();
}

TEST_P(LinearTest, EqualsFloat64WithEitherLibrary) {
  if (!device().is_cpu() || where().is_emulated) GTEST_SKIP() << "the libraries are those of a CPU";
  expect_float64_results(
      shape(), device(),
      [](const at::Tensor& x, const Parameter& weight, const Parameter& bias) {
        return cpu::linear(x, weight, bias, cpu::MatrixLibrary::aten);
      },
      kFloat32);
  expect_float64_results(
      shape(), device(),
      [](const at::Tensor& x, const Parameter& weight, const Parameter& bias) {
        return cpu::linear(x, weight, bias, cpu::MatrixLibrary::own);
      },
      kFloat32);
}

INSTANTIATE_TEST_SUITE_P(Devices, LinearTest,
                         testing::Combine(testing::ValuesIn(kDevicesAndEmulation), testing::ValuesIn(kLinearCases)),
                         index_and_device);

TEST(Linear, TakesStridedInputsAndGradients) {
  const at::Tensor storage = at::randn({40, 3, 24}), values = at::randn({10, 24});  // rows are 72 apart
  for (const auto library : {cpu::MatrixLibrary::aten, cpu::MatrixLibrary::own}) {
    const Parameter weight(values.clone());
    const at::Tensor x = storage.select(1, 1).detach().requires_grad_(), upstream = at::randn({10, 40}).t();
    const at::Tensor y = cpu::linear(x, weight, {}, library);
    EXPECT_LE(max_difference(y, at::linear(x, values)), test::tolerance(at::kFloat, 2 * 24, 25));
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
    const double tolerance = test::tolerance(at::kFloat, 2 * 33, 30);
    EXPECT_LE(max_difference(linear(x, weight, bias), at::linear(x, values, of_bias)), tolerance);
    const auto [first, second] = linear_pair(x, {weight, {}}, {weight, bias});
    EXPECT_TRUE(first.equal(linear(x, weight)));
    EXPECT_TRUE(second.equal(linear(x, weight, bias)));
    const device::Autocast autocast(at::kCPU, at::kBFloat16);
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
  compare(best_linear, [](const at::Tensor& x, const Parameter& weight, const Parameter& bias) {
    return linear_for_backward(x, {weight, bias});
  });
  const auto aten_linear = [](const at::Tensor& x, const Parameter& weight, const Parameter& bias) {
    return aten_operators()->linear(x, {weight, bias}, ProductInput::keep);
  };
  const auto aten_linear_for_backward = [](const at::Tensor& x, const Parameter& weight, const Parameter& bias) {
    return aten_operators()->linear_for_backward(x, {weight, bias});
  };
  compare(aten_linear, aten_linear_for_backward);
}

TEST(Linear, AProductIsAddedByEitherLibrary) {
  const at::Tensor a = at::randn({9, 20}), b = at::randn({12, 20}).t(), before = at::randn({9, 12});
  const at::Tensor exact = before.to(at::kDouble) + a.to(at::kDouble).matmul(b.to(at::kDouble));
  for (const auto library : {cpu::MatrixLibrary::aten, cpu::MatrixLibrary::own}) {
    const at::Tensor result = before.clone();
    add_product(result, a, b, library);
    EXPECT_LE(max_difference(result.to(at::kDouble), exact), in_sum(20 + 1));
  }
}

class LinearPairTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    device::apply_precision({}, /*deterministic=*/false);
  }
  RestoreContext restore_;
};

// 1 - 1.005859375: the second has more digits than bfloat16.
TEST_P(LinearPairTest, TheSecondProductIsNotRoundedBeforeItIsAdded) {
  const auto parameter = [&](at::IntArrayRef sizes, double value) {
    return Parameter(full(sizes, value, at::kBFloat16));
  };
  const at::Tensor x = full({4, 8}, 1, at::kBFloat16).requires_grad_();
  const auto [first, second] = linear_pair(x, {parameter({1, 8}, 1), {}}, {parameter({2, 8}, -1), {}});
  const at::Tensor of_second = full({4, 2}, 1, at::kBFloat16);
  of_second.select(1, 1).fill_(0.005859375);
  torch::autograd::backward({first, second}, {full({4, 1}, 1, at::kBFloat16), of_second});
  EXPECT_TRUE(x.grad().equal(full({4, 8}, -0.005859375, at::kBFloat16))) << x.grad();
}

INSTANTIATE_ON_DEVICES(LinearPairTest);

int additions;  // additions that LibTorch was asked for

int additions_in(const std::function<void()>& work) {
  additions = 0;
  const auto note = [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
    const std::string_view name = function.name();
    if (name == "aten::add" || name == "aten::add_") ++additions;
    return nullptr;
  };
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(note));
  work();
  at::removeCallback(handle);
  return additions;
}

TEST(LinearPair, NothingIsAddedOutsideOfTheProducts) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const auto layer = [type](int64_t N) {
      return LinearLayer{Parameter(at::randn({N, 24}, type)), Parameter(at::randn({N}, type))};
    };
    const at::Tensor x = at::randn({2, 40, 24}, type).requires_grad_();
    const auto backward = [](const LinearResults& results) {
      return additions_in([&] { torch::autograd::backward(results, {at::ones_like(results[0]), results[1]}); });
    };
    EXPECT_EQ(backward(best_linear_pair(x, {layer(16), layer(8)})), 0) << type;
    const LinearLayer first = layer(16), second = layer(8);
    x.mutable_grad().reset();
    EXPECT_EQ(backward({linear(x, first.weight, first.bias), linear(x, second.weight, second.bias)}), 1)
        << type << ": autograd adds the gradients of two operators";
  }
}

int normalizations;  // normalizations that the CPU's kernel was asked for

TEST(LinearPair, AnInputThatIsNotKeptIsComputedAnewOnceForBothLayers) {
  static const auto add_norm_kernel = cpu_kernels().add_norm;
  const auto count = [](const Normalization& norm, const Dropout& dropout, const at::Tensor& x,
                        const at::Tensor& branch, const at::Tensor& sum, const at::Tensor& normed,
                        const at::Tensor& statistics) {
    ++normalizations;
    add_norm_kernel(norm, dropout, x, branch, sum, normed, statistics);
  };
  const at::Tensor values = at::randn({2, 5, 16}), of_layers = at::randn({20, 16}), upstream = at::randn({2, 5, 10});
  const auto gradients = [&](ProductInput input, at::ScalarType autocast_type, int expected) {
    const LinearLayer first{Parameter(of_layers.narrow(0, 0, 10).clone()), {}},
        second{Parameter(of_layers.narrow(0, 10, 10).clone()), Parameter(at::ones({10}))};
    const at::Tensor x = values.clone().requires_grad_();
    const Parameter of_norm(at::full({16}, 1.5));
    at::Tensor y;
    {
      const device::Autocast autocast(at::kCPU, autocast_type);
      const at::Tensor normed = add_norm({Norm::rmsnorm, 1e-5, of_norm, {}}, x).normed;
      const auto [gate, in] = linear_pair(normed, first, second, input);
      y = activate_gated(Activation::silu, gate, in);
    }
    normalizations = 0;
    y.backward(upstream.to(y.scalar_type()));
    EXPECT_EQ(normalizations, expected);
    return LinearResults{x.grad(), first.weight.gradient(), second.weight.gradient(), second.bias.gradient(),
                         of_norm.gradient()};
  };
  cpu_kernels().add_norm = count;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const LinearResults kept = gradients(ProductInput::keep, type, 0),
                        repeated = gradients(ProductInput::repeat, type, 1);
    for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(repeated[i].equal(kept[i])) << type << " " << i;
  }
  cpu_kernels().add_norm = add_norm_kernel;
}

int row_sums;  // row sums that were added to a gradient

// The kernels of a GPU sum the gradients that they write.
TEST(LinearPair, EitherBiasGetsTheSumsOfTheGradientOfItsOwnLayer) {
  const test::EmulatedKernels emulated;
  static const auto add_row_sums_kernel = cpu_kernels().add_row_sums;
  cpu_kernels().add_row_sums = [](at::ArrayRef<Parameter> parameters, const at::Tensor& parts) {
    ++row_sums;
    add_row_sums_kernel(parameters, parts);
  };
  constexpr int64_t kRows = 35, kN = 16;
  const at::Tensor x = at::randn({5, 7, 8}), upstream = at::randn({5, 7, kN});
  for (const auto& [has_first, has_second] : {std::pair(true, true), std::pair(true, false), std::pair(false, true)}) {
    const auto layer = [](bool has_bias) {
      return LinearLayer{Parameter(at::randn({kN, 8})), has_bias ? Parameter(at::randn({kN})) : Parameter()};
    };
    const LinearLayer first = layer(has_first), second = layer(has_second);
    const auto [gate, in] = linear_pair(x, first, second);
    row_sums = 0;
    activate_gated(Activation::silu, gate, in).backward(upstream);
    EXPECT_EQ(row_sums, has_first + has_second);
    const at::Tensor leaves[] = {gate.detach().requires_grad_(), in.detach().requires_grad_()};
    (at::silu(leaves[0]) * leaves[1]).backward(upstream);
    const Parameter* biases[] = {&first.bias, &second.bias};
    for (int i = 0; i < 2; ++i) {
      if (!biases[i]->defined()) continue;
      const at::Tensor gradient = leaves[i].grad();
      EXPECT_LE(max_difference(biases[i]->gradient(), gradient.flatten(0, 1).sum(0)),
                test::tolerance(at::kFloat, kRows + 16, 2 * gradient.abs().max().item<double>()))
          << i;
    }
  }
}

}  // namespace
}  // namespace gpt::ops
