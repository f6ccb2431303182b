// Rows of one product, each with its own adapter or none.
#include "gpt/ops/row_adapters.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "gpt/layout/parameter_table.h"
#include "gpt/ops/operator_sets.h"
#include "gpt/ops/quantized_weights.h"
#include "gpt/products/quantized_product.h"
#include "support/device_cases.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

constexpr int64_t kIn = 96, kOut = 160;
constexpr Site kSite{layout::ParameterRole::mlp_in, 3};

enum class Kept { whole, int8, int4 };

struct Case {
  const char* name;
  Kept kept;
};

void PrintTo(const Case& of_test, std::ostream* out) { *out << of_test.name; }

class RowAdaptersTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { at::manual_seed(5); }

  // A layer, in the form in which the operators read it.
  LinearLayer layer(const Site& site) {
    const at::Tensor weight = at::randn({kOut, kIn}) / 10;
    if (GetParam().kept == Kept::whole)
      return {parameters::Parameter(weight), parameters::Parameter(at::randn({kOut})), site};
    packed_.push_back(pack(quantize(weight, GetParam().kept == Kept::int8 ? parameters::QuantizedType::int8
                                                                          : parameters::QuantizedType::int4)));
    return {parameters::Parameter(packed_.back().panels, {}, {}, 0, /*is_trained=*/false),
            parameters::Parameter(at::randn({kOut})), site};
  }
  SharedOperators operators() const {
    return GetParam().kept == Kept::whole ? fused_operators() : quantized_weight_operators(packed_);
  }

  static AdapterFactors factors(const Site& site, layout::RowCut::Piece outputs, int64_t rank) {
    return {site, outputs, at::randn({rank, kIn}), at::randn({outputs.length, rank})};
  }

  // What `adapter` makes of the product y of rows x.
  static at::Tensor sum(const at::Tensor& y, const at::Tensor& x, const std::vector<AdapterFactors>& adapter,
                        const Site& site) {
    at::Tensor result = test::exact(y).clone();
    for (const auto& [of, outputs, a, b] : adapter) {
      if (of.role != site.role || of.layer != site.layer) continue;
      result.narrow(1, outputs.begin, outputs.length)
          .add_(at::mm(at::mm(test::exact(x), test::exact(a).t()), test::exact(b).t()));
    }
    return result;
  }

  static void expect_near(const at::Tensor& found, const at::Tensor& expected, const std::string& what) {
    const at::Tensor of_row = (test::exact(found) - expected).abs();
    EXPECT_LE(of_row.max().item<double>(), test::tolerance(at::kFloat, kIn + 8, expected.abs().max().item<double>()))
        << what;
  }

  std::vector<PackedWeight> packed_;
};

TEST_P(RowAdaptersTest, EachRowHasItsOwnAndOthersAreAsTheyWere) {
  const c10::InferenceMode inference;
  const Site other{layout::ParameterRole::mlp_gate, 3};
  const LinearLayer first = layer(kSite), second = layer(other);
  const SharedOperators inner = operators();
  // Pieces of other ranks; and one that has nothing of this product.
  const std::vector<std::vector<AdapterFactors>> adapters{{factors(kSite, {0, 64}, 3), factors(kSite, {64, 96}, 5),
                                                           factors(other, {0, kOut}, 4)},
                                                          {factors(kSite, {32, 128}, 8)},
                                                          {factors({layout::ParameterRole::mlp_in, 4}, {0, kOut}, 2)}};
  const RowAdapters operators(inner, adapters, at::kFloat);
  // Few rows, and more than generating a token has.
  for (const int64_t times : {1, 20}) {
    const std::vector<RowAdapters::Rows> rows{{2 * times, RowAdapters::kNone}, {3 * times, 1}, {times, 0}, {times, 2}};
    const at::Tensor x = at::randn({1, 7 * times, kIn});
    const at::Tensor plain = inner->linear(x, first, ProductInput::keep)[0],
                     plain_second = inner->linear(x, second, ProductInput::keep)[0],
                     plain_gelu = inner->linear_activated(Activation::gelu, x, first, ProductInput::keep)[0];
    at::Tensor y, gelu, one, two;
    {
      const RowAdapters::Scope scope(&operators, rows);
      y = operators.linear(x, first, ProductInput::keep)[0];
      gelu = operators.linear_activated(Activation::gelu, x, first, ProductInput::keep)[0];
      std::tie(one, two) = operators.linear_pair(x, first, second, ProductInput::keep);
    }
    int64_t begin = 0;
    for (const auto& [count, adapter] : rows) {
      const auto own = [&, begin = begin, count = count](const at::Tensor& of) { return of.narrow(0, begin, count); };
      const std::string what = std::to_string(times) + ", rows of adapter " + std::to_string(adapter);
      const std::vector<AdapterFactors> none;
      const auto& added = adapter == RowAdapters::kNone ? none : adapters[adapter];
      const at::Tensor expected = sum(own(plain), own(x[0]), added, kSite);
      expect_near(own(y), expected, what);
      expect_near(own(gelu), at::gelu(expected, "tanh"), what + ", GELU");
      EXPECT_TRUE(own(one[0]).equal(own(y))) << what;
      expect_near(own(two[0]), sum(own(plain_second), own(x[0]), added, other), what + ", of a pair");
      if (adapter == RowAdapters::kNone || adapter == 2) {
        EXPECT_TRUE(own(y).equal(own(plain))) << what;
        EXPECT_TRUE(own(two[0]).equal(own(plain_second))) << what;
      }
      begin += count;
    }
    EXPECT_TRUE(operators.linear(x, first, ProductInput::keep)[0].equal(plain)) << "behind the scope there is none";
    EXPECT_TRUE(operators.linear_activated(Activation::gelu, x, first, ProductInput::keep)[0].equal(plain_gelu));
  }
}

TEST_P(RowAdaptersTest, AreNamedForAllRows) {
  const c10::InferenceMode inference;
  const LinearLayer one = layer(kSite);
  const RowAdapters operators(this->operators(), {{factors(kSite, {0, kOut}, 2)}}, at::kFloat);
  const RowAdapters::Scope scope(&operators, {{2, 0}, {1, RowAdapters::kNone}});
  EXPECT_THROW(operators.linear(at::randn({1, 4, kIn}), one, ProductInput::keep), c10::Error);
}

INSTANTIATE_TEST_SUITE_P(Forms, RowAdaptersTest,
                         testing::Values(Case{"float32", Kept::whole}, Case{"int8", Kept::int8},
                                         Case{"int4", Kept::int4}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gpt::ops
