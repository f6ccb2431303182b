#include "gpt/optim/newton_schulz.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "gpt/products/product.h"

namespace gpt {
namespace {

constexpr int kIterations = 5;
// Of the polynomial that each iteration applies to the singular values.
constexpr double kLinear = 3.4445, kCubic = -4.7750, kQuintic = 2.0315;
constexpr double kLeastNorm = 1e-7;

// added_times added + product_times a b, rounded once.
at::Tensor combination(double added_times, const at::Tensor& added, double product_times, const at::Tensor& a,
                       const at::Tensor& b, ops::cpu::MatrixLibrary library) {
  if (library == ops::cpu::MatrixLibrary::aten) return at::addmm(added, a, b, added_times, product_times);
  const at::Tensor sum = added.to(at::kFloat) * (added_times / product_times);
  ops::add_product(sum, a, b, library);
  return (product_times == 1 ? sum : sum.mul_(product_times)).to(added.scalar_type());
}

}  // namespace

at::ScalarType newton_schulz_type(const DeviceInfo& device) { return device.bfloat16 ? at::kBFloat16 : at::kFloat; }

at::Tensor orthogonalized(const at::Tensor& x) {
  TORCH_CHECK(x.dim() == 2 && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16),
              "orthogonalized: a matrix of float32 or bfloat16 expected, got ", x.sizes(), " ", x.scalar_type());
  const bool is_tall = x.size(0) > x.size(1);
  const at::Tensor norm = at::linalg_vector_norm(x, 2, {}, /*keepdim=*/false, at::kFloat).clamp_min_(kLeastNorm);
  // (m, n) with m <= n, so that the squares below are small; row by row, as our products write their results.
  at::Tensor wide = ((is_tall ? x.t() : x) / norm).contiguous();
  for (int i = 0; i < kIterations; ++i) {
    const auto library = ops::product_library(wide);
    const at::Tensor square = ops::product(wide, wide.t(), library),  // (m, m)
        factor = combination(kCubic, square, kQuintic, square, square, library);
    wide = combination(kLinear, wide, 1, factor, wide, library);
  }
  return is_tall ? wide.t() : wide;
}

double newton_schulz_flops(int64_t rows, int64_t columns) {
  const auto m = static_cast<double>(std::min(rows, columns)), n = static_cast<double>(std::max(rows, columns));
  return kIterations * 2 * (m * m * n + m * m * m + m * m * n);
}

// What is multiplied beside what comes out, two squares, and a sum that is not rounded yet.
double newton_schulz_workspace(int64_t rows, int64_t columns, at::ScalarType type) {
  const auto m = static_cast<double>(std::min(rows, columns)), n = static_cast<double>(std::max(rows, columns));
  const double unrounded = type == at::kFloat ? 0 : sizeof(float) * m * n;
  return (m * n + 2 * m * m) * static_cast<double>(c10::elementSize(type)) + unrounded;
}

}  // namespace gpt
