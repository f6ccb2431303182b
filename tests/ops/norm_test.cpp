// The residual sum and its normalization against ATen's in float64, and their dropout against what a mask must be.
#include "gpt/ops/norm.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "support/device_cases.h"
#include "support/dropout_at.h"
#include "support/emulated_kernels.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

constexpr double kEps = 1e-5;

struct NormCase {
  const char* name;
  Norm kind;
  bool bias;
  at::ScalarType type, branch_type;
};

void PrintTo(const NormCase& c, std::ostream* out) { *out << c.name; }

// What came back from an operator and its backward pass, on the CPU; undefined where there is none.
struct Outcome {
  at::Tensor sum, normed, x_gradient, branch_gradient;
};

// The upstream gradients; undefined where a result is not used.
struct Upstream {
  at::Tensor sum, normed;
};

using test::exact;

class AddNormTest : public testing::TestWithParam<std::tuple<DeviceCase, NormCase>> {
 protected:
  void SetUp() override {
    GPT_SKIP_WITHOUT(where());
    if (what().branch_type == at::kHalf && !takes_float16(where()))
      GTEST_SKIP() << "the kernels of a CPU take no float16";
    if (where().is_emulated) emulated_.emplace();
  }
  const DeviceCase& where() const { return std::get<0>(GetParam()); }
  const NormCase& what() const { return std::get<1>(GetParam()); }
  bool is_centered() const { return what().kind == Norm::layernorm; }

  at::Tensor draw(at::IntArrayRef shape, at::ScalarType type) {
    return at::randn(shape, generator_).to(where().device, type);
  }
  Normalization norm(int64_t C) {
    const auto parameter = [&] { return parameters::Parameter(draw({C}, at::kFloat)); };
    Normalization norm{what().kind, kEps, parameter(), {}};
    if (what().bias) norm.bias = parameter();
    return norm;
  }

  static Outcome run(const Normalization& norm, const at::Tensor& x, const at::Tensor& branch, const Upstream& upstream,
                     const DropoutSpec& dropout = {}) {
    const auto leaf = [](const at::Tensor& x) { return x.defined() ? x.detach().clone().requires_grad_() : x; };
    const at::Tensor own_x = leaf(x), own_branch = leaf(branch);
    const Normalized result = add_norm(norm, own_x, own_branch, dropout);
    torch::autograd::variable_list used, gradients;
    if (upstream.sum.defined()) used.push_back(result.sum), gradients.push_back(upstream.sum);
    if (upstream.normed.defined()) used.push_back(result.normed), gradients.push_back(upstream.normed);
    torch::autograd::backward(used, gradients);
    return {result.sum.detach(), result.normed.detach(), own_x.grad(), branch.defined() ? own_branch.grad() : branch};
  }

  // float64 results of the normalization of `sum`, and how large the values are that rounding errors are relative to. Those of the
  // mean, which are relative to the values it is of, are errors of n = (sum - mean) r.
  struct Reference {
    at::Tensor normed, x_gradient, weight_gradient, bias_gradient;
    at::Tensor normed_scale, x_scale, weight_scale, bias_scale;
  };
  Reference reference(const Normalization& norm, const at::Tensor& sum, const Upstream& upstream) const {
    const at::Tensor s = exact(sum).requires_grad_(), weight = exact(norm.weight.value()).requires_grad_();
    const at::Tensor bias = (norm.bias.defined() ? exact(norm.bias.value()) : at::zeros_like(weight)).requires_grad_();
    const at::Tensor normed = is_centered() ? at::layer_norm(s, weight.sizes(), weight, bias, kEps)
                                            : at::rms_norm(s, weight.sizes(), weight, kEps) + 0 * bias;
    const at::Tensor of_normed = upstream.normed.defined() ? exact(upstream.normed) : at::zeros(s.sizes(), at::kDouble);
    normed.backward(of_normed);
    Reference result{normed.detach(), s.grad(), weight.grad(), bias.grad(), {}, {}, {}, {}};
    if (upstream.sum.defined()) result.x_gradient = result.x_gradient + exact(upstream.sum);

    const at::NoGradGuard no_grad;
    const at::Tensor mean = is_centered() ? s.mean(-1, /*keepdim=*/true) : at::zeros({1}, at::kDouble);
    const at::Tensor r = ((s - mean).square().mean(-1, true) + kEps).rsqrt();
    const at::Tensor n = ((s - mean).abs() + (is_centered() ? s.abs().mean(-1, true) : mean)) * r,
                     g = (of_normed * weight).abs();
    result.normed_scale = n * weight.abs() + bias.abs();
    result.x_scale = r * (g + g.mean(-1, true) + n * (g * n).mean(-1, true));
    if (upstream.sum.defined()) result.x_scale += exact(upstream.sum).abs();
    result.weight_scale = (of_normed.abs() * n).sum_to_size(weight.sizes());
    result.bias_scale = of_normed.abs().sum_to_size(weight.sizes());
    return result;
  }

  // Values are `roundings` float32 roundings away from the exact ones, and at last rounded to their type.
  void expect_near(const at::Tensor& result, const at::Tensor& expected, const at::Tensor& scale, int64_t roundings,
                   const char* name) const {
    ASSERT_EQ(result.sizes(), expected.sizes()) << name;
    const at::Tensor error = (exact(result) - expected).abs();
    const auto type = result.scalar_type();
    const double last = type == at::kFloat ? 0 : test::unit_roundoff(type);
    const at::Tensor bound =
        test::tolerance(at::kFloat, roundings) * scale + last * expected.abs() + test::underflow(type);
    EXPECT_TRUE((error <= bound).all().item<bool>())
        << name << ": " << (error / bound).nan_to_num().max().item<double>() << " times the bound";
  }

  // The sums over a row are those of eight lanes at least; the ones over rows are of parts of them.
  static int64_t roundings(int64_t terms) { return terms / 8 + 16; }

  void expect_float64_results(const Normalization& norm, const Outcome& outcome, const Upstream& upstream) const {
    const Reference expected = reference(norm, outcome.sum, upstream);
    const int64_t C = outcome.sum.size(-1), rows = outcome.sum.numel() / C;
    ASSERT_EQ(outcome.normed.scalar_type(), what().type);
    expect_near(outcome.normed, expected.normed, expected.normed_scale, roundings(C), "normed");
    expect_near(outcome.x_gradient, expected.x_gradient, expected.x_scale, roundings(C), "gradient of x");
    if (outcome.branch_gradient.defined()) {
      ASSERT_EQ(outcome.branch_gradient.scalar_type(), what().branch_type);
      expect_near(outcome.branch_gradient, expected.x_gradient, expected.x_scale, roundings(C), "gradient of branch");
    }
    if (!upstream.normed.defined()) return;
    expect_near(norm.weight.gradient(), expected.weight_gradient, expected.weight_scale, roundings(C) + rows, "weight");
    if (norm.bias.defined()) {
      expect_near(norm.bias.gradient(), expected.bias_gradient, expected.bias_scale, rows, "bias");
    }
  }

  // The random number generator of the test's values, not that of the masks.
  at::Generator generator_ = at::detail::createCPUGenerator(1);
  std::optional<test::EmulatedKernels> emulated_;
};

// Tails of vectors and blocks, and rows in several parts.
const std::vector<int64_t> kNormShapes[] = {{3, 1},   {5, 7},    {2, 9, 65}, {70, 128}, {2, 384},
                                            {1, 768}, {3, 1000}, {2, 4104},  {1, 5003}, {3, 8192}};

TEST_P(AddNormTest, EqualsFloat64) {
  for (const auto& shape : kNormShapes) {
    for (const bool with_branch : {true, false}) {
      SCOPED_TRACE(testing::PrintToString(shape) + (with_branch ? " with a branch" : " without"));
      const Normalization norm = this->norm(shape.back());
      const at::Tensor x = draw(shape, what().type), branch = with_branch ? draw(shape, what().branch_type) : x;
      const Upstream upstream{draw(shape, what().type), draw(shape, what().type)};
      const Outcome outcome = run(norm, x, with_branch ? branch : at::Tensor(), upstream);
      ASSERT_EQ(outcome.sum.scalar_type(), what().type);
      const at::Tensor expected = with_branch ? exact(x) + exact(branch) : exact(x);
      expect_near(outcome.sum, expected, expected.abs(), 1, "sum");
      expect_float64_results(norm, outcome, upstream);
    }
  }
}

TEST_P(AddNormTest, EitherResultMayBeUnused) {
  const at::Tensor x = draw({18, 65}, what().type), branch = draw({18, 65}, what().branch_type);
  for (const bool uses_sum : {true, false}) {
    SCOPED_TRACE(uses_sum ? "sum" : "normed");
    const Normalization norm = this->norm(65);
    const Upstream upstream{uses_sum ? draw({18, 65}, what().type) : at::Tensor(),
                            uses_sum ? at::Tensor() : draw({18, 65}, what().type)};
    expect_float64_results(norm, run(norm, x, branch, upstream), upstream);
    EXPECT_EQ(norm.weight.has_gradient(), !uses_sum);
  }
}

TEST_P(AddNormTest, ContributionsAddUp) {
  const Normalization norm = this->norm(65);
  at::Tensor weight_gradient = at::zeros({65}, at::kDouble), bias_gradient = weight_gradient,
             weight_scale = weight_gradient, bias_scale = weight_gradient;
  norm.weight.gradient().fill_(1000);  // the first contribution overwrites it
  if (norm.bias.defined()) norm.bias.gradient().fill_(1000);
  for (int contribution = 0; contribution < 2; ++contribution) {
    const Upstream upstream{{}, draw({40, 65}, what().type)};
    const Outcome outcome = run(norm, draw({40, 65}, what().type), {}, upstream);
    const Reference expected = reference(norm, outcome.sum, upstream);
    weight_gradient = weight_gradient + expected.weight_gradient, weight_scale = weight_scale + expected.weight_scale;
    bias_gradient = bias_gradient + expected.bias_gradient, bias_scale = bias_scale + expected.bias_scale;
  }
  expect_near(norm.weight.gradient(), weight_gradient, weight_scale, roundings(65) + 80, "weight");
  if (norm.bias.defined()) { expect_near(norm.bias.gradient(), bias_gradient, bias_scale, 80, "bias"); }
  EXPECT_FALSE(norm.weight.value().grad().defined()) << "the gradient is the parameter's own";
}

TEST_P(AddNormTest, LargeMeansAndConstantRowsKeepTheirPrecision) {
  const Normalization norm = this->norm(768);
  at::Tensor x = draw({4, 768}, at::kFloat);
  x.narrow(0, 0, 2).add_(1000);
  x.narrow(0, 2, 1).fill_(3.3);
  x.narrow(0, 3, 1).zero_();
  x = x.to(what().type);
  const Upstream upstream{draw({4, 768}, what().type), draw({4, 768}, what().type)};
  const Outcome outcome = run(norm, x, {}, upstream);
  expect_float64_results(norm, outcome, upstream);
  // Rows of 768 values lose little more than the last digit of their mean.
  const Reference expected = reference(norm, x, upstream);
  if (where().device.is_cpu()) { expect_near(outcome.normed, expected.normed, expected.normed_scale, 8, "normed"); }
}

// With zeros for x and ones for the branch, the sum is the mask and the gradient of the branch that of x times the mask.
TEST_P(AddNormTest, DropoutDrawsTheSameMaskInBothPasses) {
  constexpr int64_t kRows = 60, kColumns = 133;
  constexpr double kProbability = 0.2;
  const Normalization norm = this->norm(kColumns);
  const at::Tensor x = at::zeros_like(draw({kRows, kColumns}, what().type)),
                   branch = at::ones_like(draw({kRows, kColumns}, what().branch_type));
  const Upstream upstream{draw({kRows, kColumns}, what().type), draw({kRows, kColumns}, what().type)};
  const auto run = [&](int64_t key) {
    return AddNormTest::run(norm, x, branch, upstream, test::dropout_at(where().device, kProbability, key));
  };
  const Outcome outcome = run(1);
  const at::Tensor mask = exact(outcome.sum), kept = (mask != 0).to(at::kDouble);
  const double factor = 1 / (1 - kProbability), narrow = 2 * test::unit_roundoff(at::kBFloat16);
  EXPECT_LE((mask - kept * factor).abs().max().item<double>(), narrow * factor);
  // Five standard deviations of a binomial distribution, of all elements and of each of the columns.
  const double deviation = std::sqrt(kProbability * (1 - kProbability));
  EXPECT_NEAR(kept.mean().item<double>(), 1 - kProbability, 5 * deviation / std::sqrt(kRows * kColumns));
  EXPECT_LE((kept.mean(0) - (1 - kProbability)).abs().max().item<double>(), 5 * deviation / std::sqrt(kRows));
  EXPECT_LE((kept.mean(1) - (1 - kProbability)).abs().max().item<double>(), 5 * deviation / std::sqrt(kColumns));
  const at::Tensor expected = exact(outcome.x_gradient) * kept * factor;
  EXPECT_TRUE(((exact(outcome.branch_gradient) - expected).abs() <= 2 * narrow * expected.abs()).all().item<bool>());
  EXPECT_TRUE(run(1).sum.equal(outcome.sum));
  EXPECT_FALSE(run(2).sum.equal(outcome.sum));
}

TEST_P(AddNormTest, TheNumberOfThreadsChangesNothing) {
  if (!where().device.is_cpu() || where().is_emulated) GTEST_SKIP() << "about threads of a CPU";
  const at::Tensor x = draw({500, 200}, what().type), branch = draw({500, 200}, what().branch_type);
  const Upstream upstream{draw({500, 200}, what().type), draw({500, 200}, what().type)};
  const Normalization one = norm(200),
                      two{one.kind, one.eps, parameters::Parameter(one.weight.value().detach().clone()),
                          one.bias.defined() ? parameters::Parameter(one.bias.value().detach().clone()) : one.bias};
  const int threads = at::get_num_threads();
  const auto run = [&](int count, const Normalization& norm) {
    at::set_num_threads(count);
    return AddNormTest::run(norm, x, branch, upstream, {0.5});
  };
  const Outcome by_one = run(1, one), by_two = run(2, two);
  at::set_num_threads(threads);
  EXPECT_TRUE(by_one.sum.equal(by_two.sum));
  EXPECT_TRUE(by_one.normed.equal(by_two.normed));
  EXPECT_TRUE(by_one.x_gradient.equal(by_two.x_gradient));
  EXPECT_TRUE(by_one.branch_gradient.equal(by_two.branch_gradient));
  EXPECT_TRUE(one.weight.gradient().equal(two.weight.gradient()));
  if (one.bias.defined()) { EXPECT_TRUE(one.bias.gradient().equal(two.bias.gradient())); }
}

TEST_P(AddNormTest, ParametersOfSixteenBitsAreTakenAsTheyAre) {
  const Normalization given = this->norm(65);
  const auto rounded = [](const parameters::Parameter& p) {
    return p.defined() ? parameters::Parameter(p.value().detach().to(at::kBFloat16)) : p;
  };
  const auto widened = [](const parameters::Parameter& p) {
    return p.defined() ? parameters::Parameter(p.value().detach().to(at::kFloat)) : p;
  };
  const Normalization narrow{given.kind, given.eps, rounded(given.weight), rounded(given.bias)},
      wide{given.kind, given.eps, widened(narrow.weight), widened(narrow.bias)};
  const at::Tensor x = draw({18, 65}, what().type), branch = draw({18, 65}, what().branch_type);
  const Upstream upstream{draw({18, 65}, what().type), draw({18, 65}, what().type)};
  const auto expect_same = [&](const parameters::Parameter& a, const parameters::Parameter& b) {
    if (!a.defined()) return;
    EXPECT_EQ(a.gradient().scalar_type(), at::kBFloat16);
    EXPECT_TRUE(a.gradient().equal(b.gradient().to(at::kBFloat16)));
  };
  const Outcome a = run(narrow, x, branch, upstream), b = run(wide, x, branch, upstream);
  EXPECT_TRUE(a.sum.equal(b.sum) && a.normed.equal(b.normed) && a.x_gradient.equal(b.x_gradient));
  expect_same(narrow.weight, wide.weight);
  expect_same(narrow.bias, wide.bias);
  const Normalization again{given.kind, given.eps, narrow.weight, narrow.bias};
  const at::Tensor before = narrow.weight.gradient().to(at::kFloat);
  (void)run(again, x, branch, upstream);
  EXPECT_TRUE(narrow.weight.gradient().to(at::kFloat).equal(2 * before)) << "a second micro-batch adds to it";
  narrow.weight.clear_gradient();
  const at::Tensor leaf = x.detach().requires_grad_(), loss = add_norm(narrow, leaf).normed.sum();
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor once = narrow.weight.gradient().to(at::kFloat);
  loss.backward();
  EXPECT_TRUE(narrow.weight.gradient().to(at::kFloat).equal(2 * once)) << "a node may go backward again";
}

TEST_P(AddNormTest, WithoutGradientsNothingIsKept) {
  const Normalization norm = this->norm(65);
  const at::Tensor x = draw({3, 65}, what().type), branch = draw({3, 65}, what().branch_type);
  const Normalized with = add_norm(norm, x, branch);
  const at::NoGradGuard no_grad;
  const Normalized without = add_norm(norm, x, branch);
  EXPECT_TRUE(with.normed.requires_grad());
  EXPECT_FALSE(without.normed.requires_grad());
  EXPECT_TRUE(without.normed.equal(with.normed));
  EXPECT_TRUE(without.sum.equal(with.sum));
  EXPECT_TRUE(add_norm(norm, x).sum.is_same(x));
}

TEST_P(AddNormTest, TakesStridedInputsAndGradients) {
  const Normalization norm = this->norm(65);
  const auto strided = [&](at::ScalarType type) { return draw({65, 18}, type).t(); };
  const at::Tensor x = strided(what().type), branch = strided(what().branch_type);
  const Upstream upstream{strided(what().type), strided(what().type)};
  const Outcome outcome = run(norm, x, branch, upstream);
  const at::Tensor expected = exact(x) + exact(branch);
  expect_near(outcome.sum, expected, expected.abs(), 1, "sum");
  expect_float64_results(norm, outcome, upstream);
}

constexpr NormCase kNormCases[] = {
    {"layernorm_bias_float32", Norm::layernorm, true, at::kFloat, at::kFloat},
    {"layernorm_bias_bfloat16", Norm::layernorm, true, at::kBFloat16, at::kBFloat16},
    {"layernorm_bias_mixed", Norm::layernorm, true, at::kFloat, at::kBFloat16},
    {"layernorm_float32", Norm::layernorm, false, at::kFloat, at::kFloat},
    {"layernorm_float16", Norm::layernorm, false, at::kHalf, at::kHalf},
    {"rmsnorm_float32", Norm::rmsnorm, false, at::kFloat, at::kFloat},
    {"rmsnorm_bfloat16", Norm::rmsnorm, false, at::kBFloat16, at::kBFloat16},
    {"rmsnorm_mixed", Norm::rmsnorm, false, at::kFloat, at::kBFloat16},
    {"rmsnorm_mixed_float16", Norm::rmsnorm, false, at::kFloat, at::kHalf},
};

INSTANTIATE_TEST_SUITE_P(Devices, AddNormTest,
                         testing::Combine(testing::ValuesIn(kDevicesAndEmulation), testing::ValuesIn(kNormCases)),
                         [](const auto& test) {
                           return std::string(std::get<1>(test.param).name) + "_" + std::get<0>(test.param).name;
                         });

// A gradient that two inputs share must not be changed through one of them.
TEST(AddNorm, XAndBranchMayBeTheSameTensor) {
  const Normalization norm{Norm::layernorm, kEps, parameters::Parameter(at::ones({4})), {}};
  const at::Tensor x = at::randn({3, 4}).requires_grad_(), upstream = at::ones({3, 4});
  const Normalized result = add_norm(norm, x, x);
  torch::autograd::backward({result.sum}, {upstream});
  EXPECT_TRUE(x.grad().equal(2 * upstream));
  EXPECT_TRUE(upstream.equal(at::ones({3, 4})));
}

TEST(AddNorm, ValuesThatAreNotFiniteStayVisible) {
  for (const Norm kind : {Norm::layernorm, Norm::rmsnorm}) {
    const Normalization norm{kind, kEps, parameters::Parameter(at::ones({9})), {}};
    at::Tensor x = at::ones({2, 9});
    x[0][8] = std::nan("");
    const at::Tensor normed = add_norm(norm, x).normed.detach();
    EXPECT_TRUE((normed[0] != normed[0]).all().item<bool>());
    EXPECT_TRUE((normed[1] == normed[1]).all().item<bool>());
  }
}

TEST(AddNorm, ArgumentsThatDoNotFitAreRefused) {
  const Normalization norm{Norm::rmsnorm, kEps, parameters::Parameter(at::ones({4})), {}};
  const at::Tensor x = at::ones({2, 4});
  EXPECT_THROW(add_norm(norm, at::ones({2, 5})), c10::Error);
  EXPECT_THROW(add_norm(norm, x.to(at::kHalf)), c10::Error);
  EXPECT_THROW(add_norm(norm, x, at::ones({1, 4})), c10::Error);
  EXPECT_THROW(add_norm(norm, x.to(at::kBFloat16), x), c10::Error);
  EXPECT_THROW(add_norm(norm, x, x.to(at::kHalf)), c10::Error);
  EXPECT_THROW(add_norm(norm, x, x, {1.0}), c10::Error);
  EXPECT_THROW(add_norm({Norm::rmsnorm, kEps, norm.weight, parameters::Parameter(at::ones({4}))}, x), c10::Error);
  EXPECT_THROW(add_norm({Norm::layernorm, kEps, norm.weight, parameters::Parameter(at::ones({5}))}, x), c10::Error);
}

}  // namespace
}  // namespace gpt::ops
