// How products are tuned: what decides, on a CPU with a library and a clock that are stand-ins.
#include "gpt/products/tuned_product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "gpt/ops/activation.h"
#include "gpt/products/product.h"
#include "src/products/product_choice.h"
#include "src/products/product_trial.h"
#include "support/captured_log.h"
#include "support/tolerance.h"

#ifdef GPT_CUDA
#include "src/products/cublaslt.h"
#endif

namespace gpt::ops {
namespace {

constexpr int64_t kM = 24, kN = 16, kK = 40;

at::Tensor contiguous_or_transposed(int64_t rows, int64_t columns, bool transposed) {
  return transposed ? at::randn({columns, rows}).t() : at::randn({rows, columns});
}

Product product_of(bool a_transposed = false, bool b_transposed = true) {
  return {.a = contiguous_or_transposed(kM, kK, a_transposed),
          .b = contiguous_or_transposed(kK, kN, b_transposed),
          .result = at::zeros({kM, kN})};
}

// Without the alignment, which a CPU's tensors have by chance.
ProductKey key_without_alignment(const Product& product) {
  ProductKey key = key_of(product).value();
  key.alignment = 16;
  return key;
}

void by_libtorch(const Product& product) {
  at::Tensor result = product.result;
  const at::Tensor of_factors = product.a.matmul(product.b).to(result.scalar_type());
  product.adds ? result.add_(of_factors) : result.copy_(of_factors);
  if (product.bias.defined()) result.add_(product.bias);
  compute_epilogue(product);
}

TEST(Fastest, IsTheWayWithTheLeastMedian) {
  const Fastest best = fastest({{4, 4, 4}, {3, 3, 3}, {1, 9, 9}, {2, 9, 2}});
  EXPECT_EQ(best.way, 3u);
  EXPECT_EQ(best.seconds, 2);
  EXPECT_EQ(best.first_seconds, 4);
}

TEST(Fastest, IsLibTorchsWithoutAClearDifference) {
  EXPECT_EQ(fastest({{100}}).way, 0u);
  EXPECT_EQ(fastest({{100}, {99}}).way, 0u);
  EXPECT_EQ(fastest({{100}, {100}, {97}}).way, 2u);
  EXPECT_EQ(fastest({{100}, {99}}).seconds, 100);
}

class ProductChoicesTest : public testing::Test {
 protected:
  std::optional<int> find(const ProductKey& key, const std::function<std::optional<Measured<int>>()>& measure) {
    return choices.find(key, [&] {
      ++measured;
      return measure();
    });
  }

  ProductChoices<int> choices;
  const ProductKey key = *key_of(product_of());
  int measured = 0;
};

TEST_F(ProductChoicesTest, AKindOfProductIsMeasuredOnce) {
  const auto seven = [] { return std::optional(Measured<int>{7, 2, 3}); };
  const auto none = [] { return std::optional(Measured<int>{std::nullopt, 5, 5}); };
  EXPECT_EQ(find(key, seven), 7);
  EXPECT_EQ(find(key, none), 7);
  EXPECT_EQ(measured, 1);
  ProductKey other = key;
  other.adds = true;
  EXPECT_EQ(find(other, none), std::nullopt);
  EXPECT_EQ(find(other, seven), std::nullopt);
  EXPECT_EQ(measured, 2);
  EXPECT_EQ(choices.tuning().products, 2);
  EXPECT_EQ(choices.tuning().improved, 1);
  EXPECT_EQ(
      to_text(choices.tuning()),
      "Measured 2 matrix products: cuBLASLt has a faster algorithm for 1; one of each takes 7000.000 ms instead of "
      "8000.000 ms");
}

TEST_F(ProductChoicesTest, WhatCannotBeMeasuredNowIsMeasuredLater) {
  EXPECT_EQ(find(key, [] { return std::optional<Measured<int>>(); }), std::nullopt);
  EXPECT_EQ(choices.tuning().products, 0);
  EXPECT_EQ(find(key, [] { return std::optional(Measured<int>{7, 2, 3}); }), 7);
}

TEST_F(ProductChoicesTest, AFailureLeavesLibTorchsWithOneLineInTheLog) {
  test::CapturedLog log;
  const auto fail = []() -> std::optional<Measured<int>> { TORCH_CHECK(false, "out of everything\nbacktrace"); };
  for (int i = 0; i < 2; ++i) EXPECT_EQ(find(key, fail), std::nullopt);
  EXPECT_EQ(measured, 1);
  EXPECT_EQ(log.text(), "warning: Product 24 x 16 x 40 stays LibTorch's: out of everything\n");
}

TEST_F(ProductChoicesTest, AWayThatFailsLaterIsGivenUp) {
  (void)find(key, [] { return std::optional(Measured<int>{7, 2, 3}); });
  test::CapturedLog log;
  choices.give_up(key, c10::Error({__func__, __FILE__, __LINE__}, "it was lost"));
  EXPECT_NE(log.text().find("it was lost"), std::string::npos);
  EXPECT_EQ(find(key, [] { return std::optional(Measured<int>{7, 2, 3}); }), std::nullopt);
  EXPECT_EQ(measured, 1);
}

TEST(ProductKey, TellsApartWhatALibraryComputesInOtherWays) {
  const Product product = product_of();
  const ProductKey key = key_without_alignment(product);
  EXPECT_EQ(key.rows, kM);
  EXPECT_EQ(key.columns, kN);
  EXPECT_EQ(key.inner, kK);
  EXPECT_FALSE(key.a_transposed);
  EXPECT_TRUE(key.b_transposed);
  EXPECT_EQ(key_without_alignment(product_of()), key) << "of the same sizes and strides";
  Product other = product;
  other.adds = true;
  EXPECT_NE(key_without_alignment(other), key);
  other = product, other.bias = at::zeros({kN});
  EXPECT_NE(key_without_alignment(other), key);
  other = product, other.gelu = at::zeros({kM, kN});
  EXPECT_NE(key_without_alignment(other), key);
  other = product, other.gelu_input = at::zeros({kM, kN}), other.sums = at::zeros({kN});
  EXPECT_NE(key_without_alignment(other), key);
  other = product, other.sums_of_a = at::zeros({kM});
  EXPECT_NE(key_without_alignment(other), key);
  EXPECT_NE(key_without_alignment(product_of(true, true)), key);
  EXPECT_NE(key_without_alignment(product_of(false, false)), key);
  other = product, other.a = product.a.to(at::kBFloat16), other.b = product.b.to(at::kBFloat16);
  EXPECT_NE(key_without_alignment(other), key);
  EXPECT_TRUE(key_of(other)) << "of 16 bits into float32";
}

TEST(ProductKey, IsEmptyForWhatStaysLibTorchs) {
  const Product product = product_of();
  Product other = product;
  other.a = at::randn({kM, 2 * kK}).narrow(1, 0, kK);
  EXPECT_FALSE(key_of(other)) << "rows further apart";
  other = product, other.result = at::zeros({kN, kM}).t();
  EXPECT_FALSE(key_of(other)) << "a transposed result";
  other = product, other.result = product.result.to(at::kBFloat16);
  EXPECT_FALSE(key_of(other)) << "float32 into 16 bits";
  other = product, other.a = product.a.to(at::kBFloat16);
  EXPECT_FALSE(key_of(other)) << "factors of two types";
  other = product, other.bias = at::zeros({kN}, at::kBFloat16);
  EXPECT_FALSE(key_of(other)) << "a bias of another type";
  other = product, other.a = at::empty({kM, 0}), other.b = at::empty({0, kN});
  EXPECT_FALSE(key_of(other)) << "an empty sum";
  const auto result_after = [](int64_t values) {  // part of a tensor that begins at a multiple of 64 bytes
    return at::zeros({kM * kN + 8}).narrow(0, values, kM * kN).view({kM, kN});
  };
  other = product, other.result = result_after(1);
  EXPECT_FALSE(key_of(other)) << "not aligned to 16 bytes";
  other.result = result_after(4);
  EXPECT_EQ(key_of(other)->alignment, 16);
}

// D = op(A) op(B) as the documentation of cuBLASLt has it: stored by columns, with the leading dimension `rows`.
std::vector<float> by_columns(const StoredProduct& product, const at::Tensor& first, const at::Tensor& second) {
  const auto at = [](const StoredMatrix& m, const at::Tensor& values, int64_t row, int64_t column) {
    if (m.transposed) std::swap(row, column);
    return values.const_data_ptr<float>()[column * m.rows + row];
  };
  const auto& [a, b, d] = product;
  const int64_t inner = a.transposed ? a.rows : a.columns;
  EXPECT_EQ(inner, b.transposed ? b.columns : b.rows);
  EXPECT_EQ(d.rows, a.transposed ? a.columns : a.rows);
  EXPECT_EQ(d.columns, b.transposed ? b.rows : b.columns);
  std::vector<float> result;
  for (int64_t column = 0; column < d.columns; ++column) {
    for (int64_t row = 0; row < d.rows; ++row) {
      float sum = 0;
      for (int64_t k = 0; k < inner; ++k) sum += at(a, first, row, k) * at(b, second, k, column);
      result.push_back(sum);
    }
  }
  return result;
}

TEST(StoredProduct, IsTheTransposedProductByColumns) {
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      const Product product = product_of(a_transposed, b_transposed);
      const std::vector<float> by_rows = by_columns(stored(*key_of(product)), product.b, product.a);
      const at::Tensor expected = product.a.matmul(product.b).contiguous();
      ASSERT_EQ(std::ssize(by_rows), kM * kN);
      for (int64_t i = 0; i < kM * kN; ++i)
        EXPECT_NEAR(by_rows[i], expected.const_data_ptr<float>()[i], test::tolerance(at::kFloat, kK, 32))
            << i << ' ' << a_transposed << b_transposed;
    }
  }
}

// The bias lies where cuBLASLt's epilogue expects it, which has a value for each row of D.
TEST(StoredProduct, HasABiasForEachRow) {
  const StoredProduct by = stored(*key_of(product_of()));
  EXPECT_EQ(by.result.rows, kN);
  EXPECT_EQ(by.result.columns, kM);
}

TEST(Product, ItsGeluIsThatOfItsResult) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    Product product = product_of(/*a_transposed=*/true);
    product.result = at::randn({kM, kN}).to(type);
    product.gelu = at::empty_like(product.result), product.gelu_kernel = gelu_out;
    compute_epilogue(product);
    const at::Tensor gelu = at::gelu(product.result.to(at::kDouble), "tanh");
    EXPECT_LE((product.gelu - gelu).abs().max().item<double>(), test::tolerance(type, 16, 4));
  }
}

TEST(Product, ItsGradientThroughGeluIsThatOfAutograd) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor a = at::randn({kM, kK}).to(type), b = at::randn({kK, kN}).to(type), sums = at::zeros({kN}, type);
    const at::Tensor x = at::randn({kM, kN}).to(type);
    const at::Tensor result = product_through_gelu(a, b, x, sums, gelu_backward);
    const at::Tensor exact_x = x.to(at::kDouble).requires_grad_(),
                     of_gelu = a.to(at::kDouble).matmul(b.to(at::kDouble));
    at::gelu(exact_x, "tanh").backward(of_gelu);
    const at::Tensor expected = exact_x.grad(), summed = expected.sum(0);
    // A sum over kK, which is rounded, times a slope below 1.2, which is rounded again.
    const double of_one = test::tolerance(type, kK, of_gelu.abs().max().item<double>());
    EXPECT_LE((result - expected).abs().max().item<double>(), 2 * of_one) << type;
    EXPECT_LE((sums - summed).abs().max().item<double>(), 2 * kM * of_one) << type;
  }
}

// A library whose ways take as long as they say, so that nothing is measured.
struct Library {
  struct Way {
    double seconds;
    ComputeProduct compute;
  };

  std::vector<Way> ways(const Product&, const ProductKey&) const { return known; }
  void run(const Product& product, const ProductKey&, const Way& way) {
    running = way.seconds;
    way.compute(product);
  }
  std::vector<std::vector<double>> seconds_of(const std::vector<std::function<void()>>& computations) {
    std::vector<std::vector<double>> seconds;
    for (const auto& compute : computations) {
      running = libtorch_seconds;
      compute();
      seconds.push_back({running});
    }
    return seconds;
  }

  double libtorch_seconds;
  std::vector<Way> known;
  double running = 0;
};

void does_nothing(const Product&) {}
void throws(const Product&) { TORCH_CHECK(false, "not supported"); }
void forgets_to_add(const Product& product) {
  Product other = product;
  other.adds = false;
  by_libtorch(other);
}
void forgets_the_bias(const Product& product) {
  Product other = product;
  other.bias.reset();
  by_libtorch(other);
}
void forgets_gelu(const Product& product) {
  Product other = product;
  other.gelu.reset();
  by_libtorch(other);
}
void forgets_the_slope(const Product& product) {
  Product other = product;
  other.gelu_input.reset();
  by_libtorch(other);
  if (product.sums.defined()) product.sums.copy_(product.result.sum(0));
}
void forgets_the_sums(const Product& product) {
  Product other = product;
  other.sums = product.sums.clone();
  by_libtorch(other);
}
void sum_of_rows(const at::Tensor& a, const at::Tensor& sums) { sums.copy_(a.sum(1)); }
void forgets_the_sums_of_a(const Product& product) {
  Product other = product;
  other.sums_of_a = product.sums_of_a.clone();
  by_libtorch(other);
}
void reads_by_columns(const Product& product) {
  Product other = product;
  other.a = product.a.contiguous().view({kK, kM}).t();
  by_libtorch(other);
}
void with_results(const Product& product, const std::function<void(at::Tensor)>& change) {
  by_libtorch(product);
  for (const at::Tensor& result : {product.result, product.gelu, product.sums, product.sums_of_a})
    if (result.defined()) change(result);
}
void adds_in_another_order(const Product& product) {
  with_results(product, [](at::Tensor result) { result.mul_(1 + 1e-6); });
}
void rounds_to_16_bits(const Product& product) {
  with_results(product, [](at::Tensor result) { result.copy_(result.to(at::kBFloat16)); });
}

Measured<Library::Way> try_out(Library library, const Product& product) {
  return measure(library, product, *key_of(product), by_libtorch);
}

TEST(ProductTrial, TheFastestOfTheRightWaysWins) {
  const auto measured =
      try_out({.libtorch_seconds = 5, .known = {{4, by_libtorch}, {3, adds_in_another_order}, {6, by_libtorch}}},
              product_of());
  ASSERT_TRUE(measured.way);
  EXPECT_EQ(measured.way->seconds, 3);
  EXPECT_EQ(measured.seconds, 3);
  EXPECT_EQ(measured.libtorch_seconds, 5);
}

TEST(ProductTrial, LibTorchsStaysWhereNoneIsFasterOrKnown) {
  EXPECT_FALSE(try_out({.libtorch_seconds = 2, .known = {{4, by_libtorch}}}, product_of()).way);
  EXPECT_FALSE(try_out({.libtorch_seconds = 2, .known = {}}, product_of()).way);
}

TEST(ProductTrial, AWayThatComputesSomethingElseIsInvalid) {
  Product plain = product_of(), with_gelu = plain, sum = plain, with_slope = plain, with_sums = plain;
  with_sums.adds = true, with_sums.sums_of_a = at::zeros({kM}), with_sums.sums_of_a_kernel = sum_of_rows;
  with_slope.gelu_input = at::randn({kM, kN}), with_slope.sums = at::zeros({kN});
  with_slope.gelu_backward_kernel = gelu_backward;
  with_gelu.bias = at::zeros({kN});  // as it is when a run begins
  with_gelu.gelu = at::zeros({kM, kN}), with_gelu.gelu_kernel = gelu_out;
  sum.adds = true;
  const auto is_valid = [](const Product& product, ComputeProduct compute) {
    return try_out({.libtorch_seconds = 5, .known = {{1, compute}}}, product).way.has_value();
  };
  for (const Product& product : {plain, with_gelu, sum, with_slope, with_sums}) {
    EXPECT_TRUE(is_valid(product, adds_in_another_order));
    EXPECT_FALSE(is_valid(product, rounds_to_16_bits));
    EXPECT_FALSE(is_valid(product, does_nothing));
    EXPECT_FALSE(is_valid(product, throws));
    EXPECT_FALSE(is_valid(product, reads_by_columns));
  }
  EXPECT_FALSE(is_valid(with_gelu, forgets_the_bias));
  EXPECT_FALSE(is_valid(with_gelu, forgets_gelu));
  EXPECT_FALSE(is_valid(sum, forgets_to_add));
  EXPECT_FALSE(is_valid(with_slope, forgets_the_slope));
  EXPECT_FALSE(is_valid(with_slope, forgets_the_sums));
  EXPECT_FALSE(is_valid(with_sums, forgets_the_sums_of_a));
}

TEST(ProductTrial, ASumIsLeftAsItIs) {
  Product product = product_of();
  product.adds = true;
  product.result = at::full({kM, kN}, 3.0);
  (void)try_out({.libtorch_seconds = 5, .known = {{1, adds_in_another_order}}}, product);
  EXPECT_TRUE(product.result.eq(3).all().item<bool>());
}

// As the gradients of a first step in float16 may be.
TEST(ProductTrial, ResultsThatCannotBeComparedAreThoseOfOtherFactors) {
  for (const float value : {std::numeric_limits<float>::infinity(), 0.0f}) {
    Product product = product_of();
    product.a.fill_(value);
    const auto measured =
        try_out({.libtorch_seconds = 5, .known = {{1, does_nothing}, {2, adds_in_another_order}}}, product);
    ASSERT_TRUE(measured.way);
    EXPECT_EQ(measured.way->seconds, 2) << "the other one is wrong";
    EXPECT_EQ(product.a[0][0].item<float>(), value);
  }
}

#ifdef GPT_CUDA
// cuBLASLt checks each attribute of a product's description when it is set, for which it needs no GPU.
TEST(Matmul, CublasLtTakesEveryDescription) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    Product plain{.a = at::zeros({16, 32}, type),
                  .b = at::zeros({8, 32}, type).t(),
                  .result = at::zeros({16, 8}, type)},
        with_gelu = plain, sum = plain, with_slope = plain, with_sums = plain;
    with_sums.sums_of_a = at::zeros({16}, type);
    with_slope.gelu_input = at::zeros({16, 8}, type), with_slope.sums = at::zeros({8}, type);
    with_gelu.bias = at::zeros({8}, type), with_gelu.gelu = at::zeros({16, 8}, type);
    sum.adds = true, sum.result = at::zeros({16, 8});
    for (const Product& product : {plain, with_gelu, sum, with_slope, with_sums})
      for (const bool is_fused : {false, true}) EXPECT_NO_THROW(cuda::Matmul(product, *key_of(product), is_fused));
  }
}
#endif

TEST(TuneProducts, IsForItsDeviceWithinItsScope) {
  const at::Tensor x = at::ones({1});
  {
    const TuneProducts for_a_gpu(true);
    EXPECT_FALSE(tunes_products(x));
    {
      const TuneProducts here(true, at::kCPU), not_another_one(false);
      EXPECT_TRUE(tunes_products(x));
    }
    EXPECT_FALSE(tunes_products(x));
  }
  const TuneProducts off(false, at::kCPU);
  EXPECT_FALSE(tunes_products(x));
}

}  // namespace
}  // namespace gpt::ops
