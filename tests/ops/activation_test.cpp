// The activations against ATen's in float64, and their dropout against what a mask must be.
#include "gpt/ops/activation.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <ostream>
#include <string>

#include "support/device_cases.h"
#include "support/dropout_at.h"
#include "support/emulated_kernels.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

struct ActivationCase {
  const char* name;
  Activation activation;
  at::ScalarType type;
};

void PrintTo(const ActivationCase& c, std::ostream* out) { *out << c.name; }

class ActivationTest : public testing::TestWithParam<std::tuple<DeviceCase, ActivationCase>> {
 protected:
  void SetUp() override {
    GPT_SKIP_WITHOUT(where());
    if (what().type == at::kHalf && !takes_float16(where())) GTEST_SKIP() << "the kernels of a CPU take no float16";
    if (where().is_emulated) emulated_.emplace();
  }
  const DeviceCase& where() const { return std::get<0>(GetParam()); }
  const ActivationCase& what() const { return std::get<1>(GetParam()); }

  at::Tensor exact(const at::Tensor& x) const {
    switch (what().activation) {
      case Activation::silu: return at::silu(x);
      case Activation::gelu: return at::gelu(x, "tanh");
      case Activation::relu2: break;
    }
    return at::relu(x).square();
  }
  bool is_square() const { return what().activation == Activation::relu2; }
  // What the activation of x, and its slope, are at most, but for a factor of 1.13.
  at::Tensor most_value(const at::Tensor& x) const { return (is_square() ? x.square() : x).detach(); }
  at::Tensor most_slope(const at::Tensor& x) const {
    return is_square() ? 2 * x.detach() : at::full_like(x, 1, at::kDouble).detach();
  }
  // A leaf of autograd on the device.
  at::Tensor draw(int64_t count) {
    return (3 * at::randn({count}, generator_)).to(where().device, what().type).requires_grad_();
  }
  static at::Tensor copy(const at::Tensor& x) { return x.detach().to(at::kDouble).cpu().requires_grad_(); }

  // Results take some sixteen roundings of float32 one after another, none of a value above `scale`, the product of what the factors are at
  // most. At last a result is rounded to its type.
  void expect_near(const at::Tensor& result, const at::Tensor& expected, const at::Tensor& scale) const {
    const at::Tensor error = (result.detach().cpu().to(at::kDouble) - expected.detach()).abs();
    const double last = what().type == at::kFloat ? 0 : test::unit_roundoff(what().type);
    const at::Tensor bound = 16 * test::unit_roundoff(at::kFloat) * scale.detach().abs() +
                             last * expected.detach().abs() + test::underflow(what().type);
    EXPECT_TRUE((error <= bound).all().item<bool>()) << (error / bound).max().item<double>() << " times the bound";
  }

  at::Generator generator_ = at::detail::createCPUGenerator(1);
  std::optional<test::EmulatedKernels> emulated_;
};

// Whole blocks, tails, and enough for several threads.
constexpr int64_t kCounts[] = {1, 7, 64, 65, 1000, 100003};

TEST_P(ActivationTest, OfAProductThatHasComputedItTheGradientIsTheSame) {
  const at::Tensor x = draw(65), again = x.detach().clone().requires_grad_(), upstream = draw(65).detach();
  activate(what().activation, x).backward(upstream);
  const at::Tensor computed = draw(65).detach(), y = activated(what().activation, again, computed);
  EXPECT_TRUE(y.detach().equal(computed));
  y.backward(upstream);
  EXPECT_TRUE(again.grad().equal(x.grad()));
  EXPECT_ANY_THROW((void)activated(what().activation, again, computed.narrow(0, 0, 64)));
}

TEST_P(ActivationTest, EqualsFloat64) {
  for (const int64_t count : kCounts) {
    const at::Tensor x = draw(count), reference = copy(x), upstream = draw(count).detach();
    const at::Tensor y = activate(what().activation, x), expected = exact(reference);
    ASSERT_EQ(y.scalar_type(), what().type);
    expect_near(y, expected, most_value(reference));
    y.backward(upstream);
    expected.backward(copy(upstream).detach());
    expect_near(x.grad(), reference.grad(), copy(upstream) * most_slope(reference));
  }
}

TEST_P(ActivationTest, GatedEqualsFloat64) {
  for (const int64_t count : kCounts) {
    const at::Tensor gate = draw(count), in = draw(count), upstream = draw(count).detach();
    const at::Tensor exact_gate = copy(gate), exact_in = copy(in);
    const at::Tensor y = activate_gated(what().activation, gate, in), expected = exact(exact_gate) * exact_in;
    expect_near(y, expected, most_value(exact_gate) * exact_in);
    y.backward(upstream);
    expected.backward(copy(upstream).detach());
    expect_near(gate.grad(), exact_gate.grad(), copy(upstream) * exact_in * most_slope(exact_gate));
    expect_near(in.grad(), exact_in.grad(), copy(upstream) * most_value(exact_gate));
  }
}

TEST_P(ActivationTest, ValuesThatAreNotFiniteStayVisible) {
  const double inf = std::numeric_limits<double>::infinity();
  const at::Tensor x = at::tensor({std::nan(""), inf, 1.0, -300.0, 300.0, 1e30}).to(where().device, what().type);
  const at::Tensor y = activate(what().activation, x).cpu().to(at::kDouble);
  EXPECT_TRUE(std::isnan(y[0].item<double>()));
  EXPECT_EQ(y[1].item<double>(), inf);
  EXPECT_NEAR(y[2].item<double>(), exact(at::ones({}, at::kDouble)).item<double>(), 1e-2);
  EXPECT_NEAR(y[3].item<double>(), 0, 1e-30);
  const at::Tensor last = exact(at::full_like(y[4], 300));  // float16 has no 90,000
  EXPECT_EQ(y[4].item<double>(), last.to(what().type).item<double>());
  const at::Tensor one = at::ones({1}, at::dtype(what().type).device(where().device));
  EXPECT_TRUE(activate_gated(what().activation, one, x.narrow(0, 0, 1)).isnan().all().item<bool>());
}

// With an input of ones, every element is 0 or the same, and the gradients are those of the same mask.
TEST_P(ActivationTest, DropoutDrawsTheSameMaskInBothPasses) {
  constexpr int64_t kCount = 100000;
  constexpr double kProbability = 0.2;
  const auto options = at::dtype(what().type).device(where().device);
  const at::Tensor gate = at::ones({kCount}, options), in = at::ones({kCount}, options).requires_grad_();
  const auto run = [&](int64_t key) {
    return activate_gated(what().activation, gate, in, test::dropout_at(where().device, kProbability, key));
  };
  const at::Tensor y = run(1), kept = y.detach() != 0;
  const double value = exact(at::ones({}, at::kDouble)).item<double>() / (1 - kProbability);
  const at::Tensor scaled = y.detach().masked_select(kept).to(at::kDouble);
  EXPECT_NEAR(scaled.min().item<double>(), value, 1e-2 * value);
  EXPECT_NEAR(scaled.max().item<double>(), value, 1e-2 * value);
  // Five standard deviations of a binomial distribution.
  EXPECT_NEAR(kept.to(at::kDouble).mean().item<double>(), 1 - kProbability,
              5 * std::sqrt(kProbability * (1 - kProbability) / kCount));
  y.backward(at::ones_like(y.detach()));
  EXPECT_TRUE((in.grad() != 0).equal(kept));
  EXPECT_TRUE(run(1).detach().equal(y.detach()));
  EXPECT_FALSE(run(2).detach().equal(y.detach()));
}

// Where processes divide the columns. A GPU's kernels draw for eight at a time.
TEST_P(ActivationTest, APartOfTheColumnsHasItsPartOfTheMask) {
  constexpr int64_t kRows = 5, kColumns = 200, kOfPart = 100;
  const at::Tensor ones = at::ones({kRows, kColumns}, at::dtype(what().type).device(where().device));
  ops::DropoutSpec dropout = test::dropout_at(where().device, 0.3, /*key=*/4, /*first_sample=*/2);
  const at::Tensor whole = activate_gated(what().activation, ones, ones, dropout);
  const bool is_on_cpu = where().device.is_cpu() && !where().is_emulated;
  for (const int64_t first : {int64_t{0}, int64_t{64}, is_on_cpu ? int64_t{77} : int64_t{72}}) {
    const at::Tensor part = ones.narrow(1, first, kOfPart).contiguous();
    dropout.first = first;
    EXPECT_TRUE(activate_gated(what().activation, part, part, dropout).equal(whole.narrow(1, first, kOfPart))) << first;
  }
}

TEST_P(ActivationTest, TheNumberOfThreadsChangesNothing) {
  if (!where().device.is_cpu() || where().is_emulated) GTEST_SKIP() << "about threads of a CPU";
  const at::Tensor gate = draw(1000 * 103).detach().view({1000, 103}), in = draw(1000 * 103).detach().view({1000, 103});
  const int threads = at::get_num_threads();
  const auto run = [&](int count) {
    at::set_num_threads(count);
    return activate_gated(what().activation, gate, in, {0.5});
  };
  const at::Tensor one = run(1), three = run(3);
  at::set_num_threads(threads);
  EXPECT_TRUE(one.equal(three));
}

INSTANTIATE_TEST_SUITE_P(
    Devices, ActivationTest,
    testing::Combine(testing::ValuesIn(kDevicesAndEmulation),
                     testing::Values(ActivationCase{"silu_float32", Activation::silu, at::kFloat},
                                     ActivationCase{"silu_bfloat16", Activation::silu, at::kBFloat16},
                                     ActivationCase{"silu_float16", Activation::silu, at::kHalf},
                                     ActivationCase{"gelu_float32", Activation::gelu, at::kFloat},
                                     ActivationCase{"gelu_bfloat16", Activation::gelu, at::kBFloat16},
                                     ActivationCase{"gelu_float16", Activation::gelu, at::kHalf},
                                     ActivationCase{"relu2_float32", Activation::relu2, at::kFloat},
                                     ActivationCase{"relu2_bfloat16", Activation::relu2, at::kBFloat16},
                                     ActivationCase{"relu2_float16", Activation::relu2, at::kHalf})),
    [](const auto& test) { return std::string(std::get<1>(test.param).name) + "_" + std::get<0>(test.param).name; });

TEST(ActivationArguments, ThatDoNotFitAreRefused) {
  const at::Tensor x = at::ones({4}), y = at::ones({5});
  EXPECT_THROW(activate_gated(Activation::silu, x, y), c10::Error);
  EXPECT_THROW(activate_gated(Activation::silu, x, x.to(at::kBFloat16)), c10::Error);
  EXPECT_THROW(activate_gated(Activation::silu, x, x, {1.0}), c10::Error);
  EXPECT_THROW(activate(Activation::silu, x.to(at::kHalf)), c10::Error);
}

}  // namespace
}  // namespace gpt::ops
