// The gradients of biases from sums that other operators make, against sums in float64 of the gradients that these operators write
// without making any; on every device and with the CUDA kernels under emulation.
#include "src/ops/row_sums.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gpt/ops/activation.h"
#include "gpt/ops/heads.h"
#include "gpt/ops/linear.h"
#include "gpt/ops/norm.h"
#include "support/device_cases.h"
#include "support/emulated_kernels.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

using RowSumsResults = std::vector<at::Tensor>;

// An operator that takes what linear() gave, and whether its kernels on a GPU sum the rows.
struct Taker {
  std::string name;
  int64_t B, T, C;
  bool sums;
  std::function<RowSumsResults(const at::Tensor& y)> take;
};

void PrintTo(const Taker& taker, std::ostream* out) { *out << taker.name; }

Taker of_activation(int64_t B, int64_t T, int64_t C, Activation activation, bool sums) {
  return {"activation of " + std::to_string(C), B, T, C, sums, [=](const at::Tensor& y) {
            return RowSumsResults{activate(activation, y)};
          }};
}

Taker of_gated(int64_t C, bool is_gate, bool sums) {
  return {std::string(is_gate ? "gate" : "input") + " of a gated activation of " + std::to_string(C),
          3,
          41,
          C,
          sums,
          [=](const at::Tensor& y) {
            const at::Tensor other = at::full_like(y.detach(), 0.5);
            return RowSumsResults{activate_gated(Activation::silu, is_gate ? y : other, is_gate ? other : y, {0.25})};
          }};
}

Taker of_heads(int64_t B, int64_t T, int64_t H, int64_t KV, int64_t D, bool rope, bool sums) {
  return {std::to_string(H) + " and " + std::to_string(KV) + " heads of " + std::to_string(D),
          B,
          T,
          (H + 2 * KV) * D,
          sums,
          [=](const at::Tensor& y) {
            const auto [q, k, v] =
                split_heads(y, {H, KV}, rope ? rotary_tables(T, D, 10000.0, y.device()) : RotaryTables{});
            return RowSumsResults{q, k, v};
          }};
}

Taker of_norm(int64_t B, int64_t T, int64_t C, double dropout, bool sums, bool is_sum = false) {
  return {"branch of " + std::to_string(C), B, T, C, sums, [=](const at::Tensor& y) {
            const auto one = [&] { return parameters::Parameter(at::full({C}, 0.75, y.options().dtype(at::kFloat))); };
            const Normalization norm{Norm::layernorm, 1e-5, one(), one()};
            const at::Tensor x = at::full_like(y.detach(), 0.5);
            const Normalized result = add_norm(norm, x, y, {dropout});
            return is_sum ? RowSumsResults{result.sum} : RowSumsResults{result.sum, result.normed};
          }};
}

// Rows of whole groups and others, with more groups than a warp has lanes, more heads than a block has threads, and more rows than a
// part; a branch whose normalization has no gradient.
std::vector<Taker> takers() {
  return {of_activation(1, 1, 8, Activation::gelu, true),
          of_activation(3, 43, 24, Activation::gelu, true),
          of_activation(2, 5, 264, Activation::silu, true),
          of_activation(2, 5, 7, Activation::gelu, false),
          of_gated(24, true, true),
          of_gated(24, false, true),
          of_gated(9, false, false),
          of_heads(2, 5, 2, 1, 16, true, true),
          of_heads(3, 43, 3, 3, 64, false, true),
          of_heads(1, 2, 100, 100, 16, true, true),
          of_heads(2, 5, 3, 1, 7, false, false),
          of_norm(3, 43, 24, 0, true),
          of_norm(2, 20, 264, 0.25, true),
          of_norm(2, 5, 264, 0.25, true, /*is_sum=*/true),
          of_norm(2, 5, 7, 0, false),
          of_norm(1, 1, 4104, 0, false)};
}

class RowSumsTest : public testing::TestWithParam<std::tuple<DeviceCase, Taker>> {
 protected:
  static constexpr int64_t kInputs = 5;

  void SetUp() override {
    GPT_SKIP_WITHOUT(where());
    if (where().is_emulated) emulated_.emplace();
  }
  const DeviceCase& where() const { return std::get<0>(GetParam()); }
  const Taker& taker() const { return std::get<1>(GetParam()); }
  bool sums_here() const { return taker().sums && takes_float16(where()); }
  at::Tensor draw(at::IntArrayRef sizes, at::ScalarType type) {
    return at::randn(sizes, generator_).to(where().device, type);
  }
  // With the same dropout every time.
  RowSumsResults take(const at::Tensor& y) const { return taker().take(y); }
  RowSumsResults upstream_of(const RowSumsResults& results) {
    RowSumsResults upstream;
    for (const at::Tensor& result : results) upstream.push_back(draw(result.sizes(), result.scalar_type()));
    return upstream;
  }
  // The gradient of a y that no layer gave.
  at::Tensor plain_gradient(const at::Tensor& y, const RowSumsResults& upstream) const {
    const at::Tensor leaf = y.detach().clone().requires_grad_();
    torch::autograd::backward(take(leaf), upstream);
    return leaf.grad();
  }
  static at::Tensor exact_sums(const at::Tensor& gradient) {
    return gradient.cpu().to(at::kDouble).flatten(0, -2).sum(0);
  }
  // The kernels sum what they have not rounded to the type, and the reference sums what has been.
  static void expect_near(const at::Tensor& sums, const at::Tensor& gradient, const at::Tensor& expected,
                          at::ScalarType type) {
    const double largest = gradient.cpu().to(at::kDouble).abs().max().item<double>();
    const int64_t rows = gradient.numel() / gradient.size(-1);
    EXPECT_LE((sums.cpu().to(at::kDouble) - expected).abs().max().item<double>(),
              test::tolerance(type, rows + 2, 2 * largest))
        << type;
  }

  at::Generator generator_ = at::detail::createCPUGenerator(1);
  std::optional<test::EmulatedKernels> emulated_;
};

TEST_P(RowSumsTest, TheOperatorThatWritesTheGradientSumsItsRows) {
  const auto& [name, B, T, C, sums, function] = taker();
  for (const auto type : kernel_types(where())) {
    const parameters::Parameter weight(draw({C, kInputs}, type)), bias(draw({C}, type));
    const at::Tensor y = linear(draw({B, T, kInputs}, type), weight, bias);
    const auto wanted = wanted_row_sums(y);
    ASSERT_TRUE(wanted);
    const RowSumsResults results = take(y), upstream = upstream_of(results);
    const at::Tensor gradient = torch::autograd::grad(results, {y}, upstream)[0];
    ASSERT_EQ(wanted->parts.defined(), sums_here()) << type;
    if (!sums_here()) continue;
    EXPECT_TRUE(wanted->gradient.is_same(gradient));
    expect_near(wanted->parts.sum(0), gradient, exact_sums(plain_gradient(y, upstream)), type);
  }
}

TEST_P(RowSumsTest, TheGradientOfTheBiasIsTheSumOverTheRowsOfEveryMicroBatch) {
  const auto& [name, B, T, C, sums, function] = taker();
  for (const auto type : kernel_types(where())) {
    const parameters::Parameter weight(draw({C, kInputs}, type)), bias(draw({C}, type));
    at::Tensor expected, gradient;
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      const at::Tensor y = linear(draw({B, T, kInputs}, type), weight, bias);
      const RowSumsResults results = take(y), upstream = upstream_of(results);
      gradient = plain_gradient(y, upstream);
      expected = micro_batch == 0 ? exact_sums(gradient) : expected + exact_sums(gradient);
      torch::autograd::backward(results, upstream);
    }
    // In 16 bits the sum itself is rounded twice.
    const double last = 2 * test::unit_roundoff(type) * expected.abs().max().item<double>();
    const double largest = gradient.cpu().to(at::kDouble).abs().max().item<double>();
    EXPECT_LE((bias.gradient().cpu().to(at::kDouble) - expected).abs().max().item<double>(),
              test::tolerance(type, 2 * B * T + 2, 2 * largest) + last)
        << type;
  }
}

// Then the gradient that reaches the layer is the sum of two, of which neither operator knows.
TEST_P(RowSumsTest, AResultThatTwoOperatorsTakeIsSummedByTheLayer) {
  const auto& [name, B, T, C, sums, function] = taker();
  const parameters::Parameter weight(draw({C, kInputs}, at::kFloat)), bias(draw({C}, at::kFloat));
  const at::Tensor y = linear(draw({B, T, kInputs}, at::kFloat), weight, bias), direct = draw({B, T, C}, at::kFloat);
  RowSumsResults results = take(y), upstream = upstream_of(results);
  const at::Tensor gradient = plain_gradient(y, upstream) + direct;
  results.push_back(y), upstream.push_back(direct);
  torch::autograd::backward(results, upstream);
  expect_near(bias.gradient(), gradient, exact_sums(gradient), at::kFloat);
}

std::vector<std::tuple<DeviceCase, Taker>> cases() {
  std::vector<std::tuple<DeviceCase, Taker>> result;
  for (const DeviceCase& where : kDevicesAndEmulation) {
    for (const Taker& taker : takers()) result.emplace_back(where, taker);
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Devices, RowSumsTest, testing::ValuesIn(cases()), index_and_device);

TEST(RowSums, AreWantedOnlyOfALayerWithABias) {
  const parameters::Parameter weight(at::randn({8, 5})), bias(at::randn({8}));
  const at::Tensor x = at::randn({3, 5});
  EXPECT_FALSE(wanted_row_sums({}));
  EXPECT_FALSE(wanted_row_sums(x));
  EXPECT_FALSE(wanted_row_sums(linear(x, weight)));
  EXPECT_FALSE(wanted_row_sums(linear(x, weight, bias) * 2));
  EXPECT_TRUE(wanted_row_sums(linear(x, weight, bias)));
}

class AddRowSums : public testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override {
    GPT_SKIP_WITHOUT(GetParam());
    if (GetParam().is_emulated) emulated_.emplace();
  }
  std::optional<test::EmulatedKernels> emulated_;
};

// More parts than a block has threads; columns that are whole groups and others. The second parameter has a gradient already.
TEST_P(AddRowSums, OverwriteWhatWasThereOnceAndThenAdd) {
  constexpr int64_t kParts = 300;
  for (const auto type : kernel_types(GetParam())) {
    for (const int64_t C : {75, 24}) {
      const auto options = at::dtype(type).device(GetParam().device);
      const std::vector<parameters::Parameter> parameters{parameters::Parameter(at::full({C}, 1.0, options)),
                                                          parameters::Parameter(at::full({C}, 1.0, options))};
      parameters[0].gradient().fill_(1000);
      parameters[1].gradient().zero_(), parameters[1].begin_contribution();
      // Two of the three rows of each part.
      const at::Tensor all = at::randn({kParts, 3, C}, options.dtype(at::kFloat)), parts = all.narrow(1, 1, 2),
                       once = parts.cpu().to(at::kDouble).sum(0);
      const auto expect_sums = [&](int64_t parameter, int time) {
        const at::Tensor expected = time * once[parameter];
        const double largest = expected.abs().max().item<double>(),
                     rounded = time * test::unit_roundoff(type) * largest;
        EXPECT_LE((parameters[parameter].gradient().cpu().to(at::kDouble) - expected).abs().max().item<double>(),
                  test::tolerance(at::kFloat, time * kParts, 2 * largest) + rounded)
            << type << ", parameter " << parameter << ", time " << time;
      };
      for (int time = 1; time <= 2; ++time) {
        kernels_of(parts)->add_row_sums(parameters, parts);
        expect_sums(0, time);
        expect_sums(1, time);
      }
      kernels_of(parts)->add_row_sums({parameters[1]}, parts.select(1, 1));
      expect_sums(0, 2);
      expect_sums(1, 3);
    }
  }
}

// Rows that no operator has summed, with less than a group of columns, groups and a rest, and more than a block has threads; they are fewer
// than parts, and many.
TEST_P(AddRowSums, SumRowsEqualsFloat64) {
  for (const auto type : kernel_types(GetParam())) {
    for (const int64_t C : {3, 24, 75, 2304}) {
      for (const int64_t rows : {1, 5, C > 1000 ? 70 : 1000}) {
        SCOPED_TRACE(testing::Message() << type << ", " << rows << " x " << C);
        const at::Tensor x = at::randn({rows, C}, at::dtype(type).device(GetParam().device)),
                         parts = kernels_of(x)->sum_rows(x);
        if (GetParam().device.is_cpu() && !GetParam().is_emulated) {
          EXPECT_FALSE(parts.defined());
          continue;
        }
        const at::Tensor expected = x.cpu().to(at::kDouble).sum(0), magnitudes = x.cpu().to(at::kDouble).abs().sum(0);
        EXPECT_LE((parts.cpu().to(at::kDouble).sum(0) - expected).abs().max().item<double>(),
                  test::tolerance(at::kFloat, rows, magnitudes.max().item<double>()));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, AddRowSums, testing::ValuesIn(kDevicesAndEmulation),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace gpt::ops
