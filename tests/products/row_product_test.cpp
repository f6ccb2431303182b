// Few rows times a weight, against float64.
#include "gpt/products/row_product.h"

#include <ATen/ops/abs.h>
#include <ATen/ops/max.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "gpt/simd/cpu_capability.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

struct Shape {
  int64_t M, K, N;
};

// Neither K nor N is a multiple of what a kernel takes at once, or both are. Rows that are many or long go another way than others.
constexpr Shape kShapes[] = {{1, 64, 128}, {1, 37, 5},  {2, 768, 31}, {3, 100, 64}, {3, 3000, 7}, {1, 5000, 4},
                             {5, 33, 9},   {7, 128, 4}, {8, 15, 258}, {4, 1, 1},    {16, 96, 12}, {14, 200, 29}};

TEST(RowProduct, IsTheFloat64ProductForEveryTypeAndShape) {
  at::manual_seed(1);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto& [M, K, N] : kShapes) {
      for (const bool has_bias : {false, true}) {
        const at::Tensor x = at::randn({M, K}), weight = at::randn({N, K}).to(type), bias = at::randn({N}).to(type);
        const at::Tensor y = row_product(x, weight, has_bias ? bias : at::Tensor());
        at::Tensor expected = x.to(at::kDouble).matmul(weight.to(at::kDouble).t());
        if (has_bias) expected = expected + bias.to(at::kDouble);
        EXPECT_EQ(y.scalar_type(), at::kFloat);
        // What the factors hold is exact in float64: only the sums of K products round.
        const double magnitude = x.abs().matmul(weight.to(at::kFloat).abs().t()).max().item<double>();
        EXPECT_LE((y - expected).abs().max().item<double>(), test::tolerance(at::kFloat, 2, magnitude))
            << c10::toString(type) << " " << M << " x " << K << " x " << N << (has_bias ? " with bias" : "");
      }
    }
  }
}

TEST(RowProduct, IsTheSameForEveryNumberOfThreads) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({2, 512}), weight = at::randn({3000, 512});
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = row_product(x, weight);
  at::set_num_threads(3);
  const at::Tensor three = row_product(x, weight);
  at::set_num_threads(threads);
  EXPECT_TRUE(one.equal(three));
}

// So a text does not depend on those that are computed beside it.
TEST(RowProduct, OfARowIsTheSameBesideOthers) {
  at::manual_seed(3);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor x = at::randn({kMostFewRows, 900}), weight = at::randn({50, 900}).to(type);
    const at::Tensor together = row_product(x, weight);
    for (const int64_t count : {1, 3, 6}) {
      const at::Tensor some = row_product(x.narrow(0, 2, count), weight);
      EXPECT_TRUE(some.equal(together.narrow(0, 2, count))) << c10::toString(type) << ", " << count << " rows";
    }
  }
}

TEST(RowProduct, TakesFewRowsOfFloat32OnACpu) {
  const at::Tensor weight = at::randn({4, 8});
  EXPECT_TRUE(has_few_rows(at::randn({8, 8}), weight));
  EXPECT_FALSE(has_few_rows(at::randn({kMostFewRows + 1, 8}), weight));
  EXPECT_FALSE(has_few_rows(at::randn({1, 8}).to(at::kBFloat16), weight));
  EXPECT_FALSE(has_few_rows(at::randn({1, 8}), at::randn({8, 4}).t()));
  EXPECT_FALSE(has_few_rows(at::randn({1, 8}), weight.to(at::kDouble)));
  EXPECT_THROW((void)row_product(at::randn({1, 7}), weight), c10::Error);
  EXPECT_THROW((void)row_product(at::randn({1, 8}), weight, at::randn({3})), c10::Error);
}

}  // namespace
}  // namespace gpt::ops
