#include "src/products/product_cpu.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <vector>

#include "gpt/device/cpu_bfloat16.h"
#include "gpt/simd/cpu_capability.h"
#include "support/restore_context.h"
#include "support/tolerance.h"

namespace gpt::ops::cpu {
namespace {

struct ProductShape {
  int64_t M, K, N;
};

void PrintTo(const ProductShape& shape, std::ostream* out) { *out << shape.M << " x " << shape.K << " x " << shape.N; }

// Less than a tile, rests of tiles, vectors and panels, sums over several panels, and rows that go through them in several blocks.
const ProductShape kProductShapes[] = {{2, 2, 2},     {3, 34, 16},     {17, 6, 3},      {40, 130, 70},  {64, 96, 48},
                                       {9, 2500, 33}, {140, 4100, 50}, {1030, 66, 113}, {513, 1026, 17}};

struct Types {
  at::ScalarType factors, result;
};

// The product of matrices that lie as rows or as columns, into a part of a larger matrix, of which nothing else changes.
class ProductTest : public testing::TestWithParam<ProductShape> {
 protected:
  void expect_float64_result(const Types& types, bool a_lies_transposed, bool b_lies_transposed, bool adds,
                             bool has_bias) {
    const auto [M, K, N] = GetParam();
    const auto random = [](int64_t rows, int64_t columns, bool lies_transposed, at::ScalarType type) {
      return lies_transposed ? at::randn({columns, rows}).to(type).t() : at::randn({rows, columns}).to(type);
    };
    Product product{random(M, K, a_lies_transposed, types.factors),
                    random(K, N, b_lies_transposed, types.factors),
                    {},
                    adds};
    const at::Tensor before = at::randn({M + 2, N + 40}).to(types.result), whole = before.clone();
    const auto part = [&](const at::Tensor& x) { return x.narrow(0, 1, M).narrow(1, 8, N); };
    product.result = part(whole);
    if (has_bias) product.bias = at::randn({N}).to(types.result);
    ASSERT_TRUE(can_multiply(product));
    multiply(product);

    at::Tensor exact = product.a.to(at::kDouble).matmul(product.b.to(at::kDouble));
    if (adds) exact = exact + part(before).to(at::kDouble);
    if (has_bias) exact = exact + product.bias.to(at::kDouble);
    const double of_sum = test::tolerance(at::kFloat, K + 2, 5 * std::sqrt(static_cast<double>(K + 2)));
    const at::Tensor bound = of_sum + test::unit_roundoff(types.result) * exact.abs();
    EXPECT_TRUE(((product.result.to(at::kDouble) - exact).abs() <= bound).all().item<bool>())
        << types.factors << " to " << types.result << ", a " << a_lies_transposed << ", b " << b_lies_transposed
        << ", adds " << adds << ", bias " << has_bias;
    product.result.copy_(part(before));
    EXPECT_TRUE(whole.equal(before));
  }

  void expect_float64_results(const Types& types) {
    for (const bool a : {false, true}) {
      for (const bool b : {false, true}) expect_float64_result(types, a, b, false, false);
    }
    expect_float64_result(types, false, true, false, true);
    expect_float64_result(types, true, false, true, false);
  }
  RestoreContext restore_;
};

TEST_P(ProductTest, EqualsFloat64) {
  std::vector<Capability> all{Capability::DEFAULT};
  for (const auto better : {Capability::AVX2, Capability::AVX512}) {
    if (better <= capability()) all.push_back(better);
  }
  for (const auto one : all) {
    const WithCapability with(one);
    expect_float64_results({at::kFloat, at::kFloat});
  }
}

TEST_P(ProductTest, OfBFloat16EqualsFloat64) {
  if (device::dot_product_gain() == 0) GTEST_SKIP() << "no AVX512_BF16 on this processor";
  for (const auto one : {Capability::AVX512_BF16, Capability::AVX512_AMX}) {
    if (one == Capability::AVX512_AMX && capability() != one) continue;
    const WithCapability with(one);
    for (const auto result : {at::kBFloat16, at::kFloat}) expect_float64_results({at::kBFloat16, result});
  }
}

TEST_P(ProductTest, IsTheSameWithAnyNumberOfThreads) {
  const auto [M, K, N] = GetParam();
  std::vector<at::ScalarType> types{at::kFloat};
  if (device::dot_product_gain() > 0) types.push_back(at::kBFloat16);
  for (const auto type : types) {
    const at::Tensor a = at::randn({M, K}).to(type), b = at::randn({N, K}).to(type).t(), first = at::full({M, N}, 0.0f);
    at::set_num_threads(1);
    multiply({.a = a, .b = b, .result = first});
    for (const int threads : {2, 3, 4}) {
      at::set_num_threads(threads);
      const at::Tensor result = at::full({M, N}, 0.0f);
      multiply({.a = a, .b = b, .result = result});
      EXPECT_TRUE(result.equal(first)) << type << ", " << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ProductTest, testing::ValuesIn(kProductShapes));

TEST(Product, OfAnOddNumberOfRowsThatLieAsColumnsEqualsFloat64) {
  if (device::dot_product_gain() == 0) GTEST_SKIP() << "no AVX512_BF16 on this processor";
  const at::Tensor gradient = at::randn({77, 20}).to(at::kBFloat16), x = at::randn({77, 34}).to(at::kBFloat16),
                   result = at::full({20, 34}, 0.0f);
  multiply({.a = gradient.t(), .b = x, .result = result});
  const at::Tensor exact = gradient.t().to(at::kDouble).matmul(x.to(at::kDouble));
  EXPECT_LE((result.to(at::kDouble) - exact).abs().max().item<double>(),
            test::tolerance(at::kFloat, 77, 5 * std::sqrt(77.0)));
}

TEST(Product, TakesWhatLiesByRowsOrColumnsAndPairsOfBFloat16Alone) {
  const auto takes = [](const at::Tensor& a, const at::Tensor& b, at::ScalarType result = at::kFloat) {
    return can_multiply({.a = a, .b = b, .result = at::empty({a.size(0), b.size(1)}, result)});
  };
  const auto matrix = [](int64_t rows, int64_t columns) { return at::randn({rows, columns}); };
  EXPECT_TRUE(takes(matrix(4, 7), matrix(7, 5)));
  EXPECT_FALSE(takes(matrix(4, 7), matrix(7, 5), at::kBFloat16));
  EXPECT_FALSE(takes(matrix(4, 0), matrix(0, 5)));
  EXPECT_FALSE(takes(at::randn({4, 7, 2}).select(2, 0), matrix(7, 5)));
  EXPECT_FALSE(takes(matrix(1, 1).expand({4, 7}), matrix(7, 5)));

  if (device::dot_product_gain() == 0) GTEST_SKIP() << "no AVX512_BF16 on this processor";
  const auto narrow = [&](int64_t rows, int64_t columns) { return matrix(rows, columns).to(at::kBFloat16); };
  EXPECT_TRUE(takes(narrow(4, 6), narrow(6, 5)));
  EXPECT_TRUE(takes(narrow(7, 3).t(), narrow(7, 5)));
  EXPECT_FALSE(takes(narrow(4, 7), narrow(7, 5)));
  EXPECT_FALSE(takes(narrow(8, 4).t(), narrow(5, 9).narrow(1, 0, 8).t()));
  EXPECT_FALSE(takes(narrow(4, 9).narrow(1, 0, 8), narrow(8, 5)));
}

}  // namespace
}  // namespace gpt::ops::cpu
