// The kernels for matrix units, with tiles in plain C++: so that what they pack is tested on processors without such a unit.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/util/BFloat16.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "gpt/device/cpu_bfloat16.h"
#include "src/ops/cpu/attention_kernel.h"
#include "src/products/product_kernel.h"
#include "support/tolerance.h"

namespace gpt::ops::cpu {

namespace AVX512_EMULATED {
extern const ProductKernel<c10::BFloat16, float> product_bfloat16_in_float32;
extern const ProductKernel<c10::BFloat16, c10::BFloat16> product_bfloat16;
extern const AttentionKernels<c10::BFloat16> attention_bfloat16;
}  // namespace AVX512_EMULATED
namespace AVX512_BF16 {
extern const AttentionKernels<c10::BFloat16> attention_bfloat16;
}

namespace {

using c10::BFloat16;

class EmulatedTiles : public testing::Test {
 protected:
  void SetUp() override {
    if (device::dot_product_gain() == 0) GTEST_SKIP() << "no AVX512_BF16 on this processor";
  }
};

ProductFactor<BFloat16> factor(const at::Tensor& x) {
  const bool lies_by_columns = x.stride(1) != 1;
  return {x.const_data_ptr<BFloat16>(), x.stride(lies_by_columns ? 1 : 0), lies_by_columns};
}

// What is not written must not be read.
at::Tensor scratch_of(int64_t floats) { return at::full({floats}, std::numeric_limits<float>::quiet_NaN()); }

template <class R>
void expect_float64_product(const ProductKernel<BFloat16, R>& kernel, const at::Tensor& a, const at::Tensor& b,
                            bool adds, bool has_bias) {
  const int64_t M = a.size(0), K = a.size(1), N = b.size(1);
  const at::ScalarType type = c10::CppTypeToScalarType<R>::value;
  const at::Tensor before = at::randn({M, N + 3}).to(type), result = before.clone(), bias = at::randn({N}).to(type);
  const ProductArguments<BFloat16, R> arguments{M,         K,         N,
                                                factor(a), factor(b), result.data_ptr<R>(),
                                                N + 3,     adds,      has_bias ? bias.const_data_ptr<R>() : nullptr};
  const at::Tensor scratch = scratch_of(kernel.scratch(arguments, M));
  kernel.multiply(arguments, {0, M, 0, N}, scratch.data_ptr<float>());

  at::Tensor exact = a.to(at::kDouble).matmul(b.to(at::kDouble));
  if (adds) exact = exact + before.narrow(1, 0, N);
  if (has_bias) exact = exact + bias;
  const double of_sum = test::tolerance(at::kFloat, K + 2, 5 * std::sqrt(static_cast<double>(K + 2)));
  const at::Tensor bound = of_sum + test::unit_roundoff(type) * exact.abs();
  EXPECT_TRUE(((result.narrow(1, 0, N).to(at::kDouble) - exact).abs() <= bound).all().item<bool>())
      << M << " x " << K << " x " << N << ", strides " << a.strides() << " and " << b.strides();
  EXPECT_TRUE(result.narrow(1, N, 3).equal(before.narrow(1, N, 3)));
}

TEST_F(EmulatedTiles, ProductsEqualFloat64) {
  const auto draw = [](int64_t rows, int64_t columns, bool lies_transposed) {
    return lies_transposed ? at::randn({columns, rows}).to(at::kBFloat16).t()
                           : at::randn({rows, columns}).to(at::kBFloat16);
  };
  // Less than a tile, rests of tiles, sums over several panels, and rows that are taken in several blocks.
  for (const auto& [M, K, N] : {std::array<int64_t, 3>{1, 1, 1},
                                {2, 2, 2},
                                {3, 34, 16},
                                {17, 5, 3},
                                {40, 130, 70},
                                {33, 2500, 65},
                                {540, 35, 33}}) {
    for (const bool a_lies_transposed : {false, true}) {
      for (const bool b_lies_transposed : {false, true}) {
        const at::Tensor a = draw(M, K, a_lies_transposed), b = draw(K, N, b_lies_transposed);
        expect_float64_product(AVX512_EMULATED::product_bfloat16_in_float32, a, b, a_lies_transposed,
                               b_lies_transposed);
        expect_float64_product(AVX512_EMULATED::product_bfloat16, a, b, b_lies_transposed, a_lies_transposed);
      }
    }
  }
}

struct AttentionResult {
  at::Tensor output, log_sum, gradient;
};

AttentionResult attend(const AttentionKernels<BFloat16>& kernel, const AttentionShape& shape, const at::Tensor& qkv,
                       const at::Tensor& output_gradient) {
  const AttentionResult result{at::zeros({shape.B, shape.T, shape.H, shape.D}, at::kBFloat16),
                               at::zeros({shape.B, shape.H, shape.T}), at::zeros(qkv.sizes(), at::kBFloat16)};
  const at::Tensor forward = scratch_of(kernel.forward_scratch(shape)),
                   backward = scratch_of(kernel.backward_scratch(shape)), sums = scratch_of(shape.query_sums());
  const auto *from = qkv.const_data_ptr<BFloat16>(), *upstream = output_gradient.const_data_ptr<BFloat16>();
  auto *output = result.output.data_ptr<BFloat16>(), *gradient = result.gradient.data_ptr<BFloat16>();
  auto *log_sum = result.log_sum.data_ptr<float>(), *of_queries = sums.data_ptr<float>();
  for (int64_t batch = 0; batch < shape.B; ++batch) {
    for (int64_t head = 0; head < shape.KV; ++head) {
      const AttentionTask task{batch, head, 0, 1};
      kernel.forward(shape, task, from, output, log_sum, forward.data_ptr<float>());
      kernel.backward(shape, task, from, output, log_sum, upstream, gradient, of_queries, backward.data_ptr<float>());
      kernel.finish_queries(shape, task, of_queries, gradient);
    }
  }
  return result;
}

// Both kernels round the factors of their products alike, and add in another order. So a factor that is computed from sums, a weight or the
// gradient of a score, may be rounded to a neighbour, which is up to 2^-7 of it away.
TEST_F(EmulatedTiles, AttentionEqualsThatOfDotProducts) {
  for (const AttentionShape& shape :
       {AttentionShape{1, 1, 1, 1, 8}, AttentionShape{2, 97, 4, 2, 64}, AttentionShape{1, 65, 2, 1, 20},
        AttentionShape{1, 200, 1, 1, 128}, AttentionShape{.B = 1, .T = 350, .H = 2, .KV = 1, .D = 48, .window = 75},
        AttentionShape{1, 33, 1, 1, 33}}) {
    const at::Tensor qkv = at::randn({shape.B, shape.T, shape.heads(), shape.D}).to(at::kBFloat16),
                     upstream = at::randn({shape.B, shape.T, shape.H, shape.D}).to(at::kBFloat16);
    const AttentionResult got = attend(AVX512_EMULATED::attention_bfloat16, shape, qkv, upstream),
                          expected = attend(AVX512_BF16::attention_bfloat16, shape, qkv, upstream);
    const auto expect_close = [&](const at::Tensor& x, const at::Tensor& y, const char* name) {
      const at::Tensor difference = (x.to(at::kFloat) - y.to(at::kFloat)).abs();
      EXPECT_TRUE((difference <= 2e-2 * y.to(at::kFloat).abs() + 0.01).all().item<bool>())
          << name << ", " << shape.T << " positions of " << shape.D << ": " << difference.max().item<float>();
    };
    expect_close(got.output, expected.output, "output");
    expect_close(got.log_sum, expected.log_sum, "log_sum");
    expect_close(got.gradient, expected.gradient, "gradient");
  }
}

}  // namespace
}  // namespace gpt::ops::cpu
