#include "gpt/optim/newton_schulz.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "gpt/products/product.h"
#include "gpt/products/several_products.h"

namespace gpt::optim {
namespace {

using ops::cpu::PlainProduct, ops::cpu::SymmetricProduct;

constexpr int kIterations = 5;
// Coefficients of the polynomial that each iteration applies to the singular values.
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

at::Tensor orthogonalized(const at::Tensor& x) {
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

// What becomes of one matrix in float32 on a CPU, (m, m) each. G is kept times sqrt(c), so that the product in F has no factor.
class Squares {
 public:
  explicit Squares(const Orthogonalization& of)
      : of_(of), is_tall_(of.from.size(0) > of.from.size(1)), side_(std::min(of.from.size(0), of.from.size(1))) {
    const at::Tensor memory = at::empty({5, side_, side_}, at::kFloat);
    gram_ = memory[0], factor_ = memory[1], all_ = memory[2], next_ = memory[3], half_ = memory[4];
  }

  SymmetricProduct gram() {
    if (is_tall_) wide_ = of_.from.t().contiguous();  // the kernel would pack it for each of its parts
    return is_tall_ ? SymmetricProduct{gram_, wide_, of_.from} : SymmetricProduct{gram_, of_.from, of_.from.t()};
  }

  // Divides by the square of the norm, which is the trace. Where that is too large for float32 nothing remains.
  void normalize() {
    wide_.reset();
    const double trace = gram_.diagonal().sum(at::kDouble).item<double>();
    if (!std::isfinite(trace)) gram_.zero_();
    norm_ = std::max(std::sqrt(trace), kLeastNorm);
    multiply(gram_, std::sqrt(kQuintic) / (norm_ * norm_));
  }

  SymmetricProduct factor() const {
    return {.result = factor_,
            .a = gram_,
            .b = gram_,
            .added = gram_,
            .added_times = static_cast<float>(kCubic / std::sqrt(kQuintic)),
            .diagonal = static_cast<float>(kLinear)};
  }
  SymmetricProduct all() const { return {.result = next_, .a = factor_, .b = all_}; }
  SymmetricProduct half_of_gram() const { return {.result = half_, .a = factor_, .b = gram_}; }
  SymmetricProduct gram_again() const { return {.result = gram_, .a = factor_, .b = half_}; }
  void end_iteration(bool is_first) { std::swap(all_, is_first ? factor_ : next_); }

  PlainProduct result() const {
    multiply(all_, of_.times / norm_);
    return is_tall_ ? PlainProduct{of_.to, of_.from, all_} : PlainProduct{of_.to, all_, of_.from};
  }

 private:
  void multiply(const at::Tensor& square, double by) const {
    auto* const values = square.mutable_data_ptr<float>();
    const auto factor = static_cast<float>(by);
    for (int64_t i = 0; i < side_ * side_; ++i) values[i] *= factor;
  }

  Orthogonalization of_;
  bool is_tall_;
  int64_t side_;
  at::Tensor wide_, gram_, factor_, all_, next_, half_;
  double norm_ = 0;
};

// work(matrix) of each, by all threads.
template <class Work>
auto for_each(std::vector<Squares>& matrices, Work work) {
  std::vector<decltype(work(matrices[0]))> results(matrices.size());
  at::parallel_for(0, std::ssize(matrices), 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;
    for (int64_t i = begin; i < end; ++i) results[i] = work(matrices[i]);
  });
  return results;
}

void orthogonalize_by_squares(const std::vector<Orthogonalization>& of) {
  std::vector<Squares> matrices(of.begin(), of.end());
  ops::cpu::multiply_together(for_each(matrices, [](Squares& matrix) { return matrix.gram(); }));
  for_each(matrices, [](Squares& matrix) { return matrix.normalize(), 0; });
  for (int i = 0; i < kIterations; ++i) {
    const bool is_last = i + 1 == kIterations;
    std::vector<SymmetricProduct> factors, products, grams;
    for (const Squares& matrix : matrices) {
      factors.push_back(matrix.factor());
      if (i > 0) products.push_back(matrix.all());
      if (!is_last) products.push_back(matrix.half_of_gram()), grams.push_back(matrix.gram_again());
    }
    for (const auto& each : {factors, products, grams}) ops::cpu::multiply_together(each);
    for (Squares& matrix : matrices) matrix.end_iteration(i == 0);
  }
  ops::cpu::multiply_together(for_each(matrices, [](Squares& matrix) { return matrix.result(); }));
}

bool has_squares(const at::Tensor& x) { return x.is_cpu() && x.scalar_type() == at::kFloat; }

}  // namespace

at::ScalarType newton_schulz_type(const device::DeviceInfo& device) {
  return device.bfloat16 ? at::kBFloat16 : at::kFloat;
}

void orthogonalize(const std::vector<Orthogonalization>& matrices) {
  for (const auto& [x, to, times] : matrices) {
    TORCH_CHECK(x.dim() == 2 && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16),
                "orthogonalize: matrices of float32 or bfloat16 expected, got ", x.sizes(), " ", x.scalar_type());
    TORCH_CHECK(has_squares(x) == has_squares(matrices[0].from), "orthogonalize: matrices of one kind expected");
  }
  if (!matrices.empty() && has_squares(matrices[0].from)) return orthogonalize_by_squares(matrices);
  for (const auto& [x, to, times] : matrices) to.copy_(orthogonalized(x).mul_(times));  // 1 rounds nothing
}

double newton_schulz_flops(int64_t rows, int64_t columns) {
  const auto m = static_cast<double>(std::min(rows, columns)), n = static_cast<double>(std::max(rows, columns));
  return kIterations * 2 * (m * m * n + m * m * m + m * m * n);
}

double least_newton_schulz_flops(int64_t rows, int64_t columns) {
  const auto m = static_cast<double>(std::min(rows, columns)), n = static_cast<double>(std::max(rows, columns));
  constexpr double kSquares =
      4 * kIterations - 3;  // F, P, F G and F G F; the first P is F, and the last G is not needed
  return m * m * n + kSquares * m * m * m + 2 * m * m * n;
}

// On a CPU float32 has five squares, and of a tall matrix a copy. Elsewhere there are what is multiplied beside what comes out, two squares,
// and a sum that is not rounded yet; for float32 on a GPU this is enough, too.
double newton_schulz_workspace(int64_t rows, int64_t columns, at::ScalarType type) {
  const auto m = static_cast<double>(std::min(rows, columns)), n = static_cast<double>(std::max(rows, columns));
  if (type == at::kFloat) return ((rows > columns ? m * n : 0) + 5 * m * m) * sizeof(float);
  return (2 * m * n + 2 * m * m) * static_cast<double>(c10::elementSize(type)) + sizeof(float) * m * n;
}

}  // namespace gpt::optim
