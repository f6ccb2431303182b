#include "product_trial.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/norm.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace gpt::ops {
namespace {

// How far two right results may differ in relation to their norm: by the rounding of the factors' or the results' type, of which
// products of float32 factors may use TF32 unless that is off, and by the order of sums.
double tolerance(at::ScalarType type) {
  const bool tf32 = at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) ==
                    at::Float32Precision::TF32;
  if (type == at::kBFloat16) return 1e-2;
  return type == at::kHalf || tf32 ? 2e-3 : 1e-4;
}

// A tensor with the sizes and strides of x that contains no zeros, infinities or random numbers.
at::Tensor waves_like(const at::Tensor& x) {
  const at::Tensor values = at::arange(x.numel(), x.options().dtype(at::kFloat)).sin_();
  return at::empty_like(x).copy_(values.view(x.sizes()));
}

}  // namespace

ProductTrial::ProductTrial(const Product& product, ComputeProduct by_libtorch) : product_(product) {
  const auto expect = [&] { expected_ = values_of([&] { by_libtorch(product_); }); };
  if (product.adds) product_.result = at::empty_like(product.result);
  expect();
  if (!is_comparable()) {
    product_.a = waves_like(product.a), product_.b = waves_like(product.b);
    expect();
  }
  if (product.bias.defined()) {
    // The model's is zero at first, which would hide one that is missing. This one hides nothing of the product either.
    const at::Tensor size = product_.result.select(0, 0).to(at::kFloat).abs().mean();
    product_.bias = waves_like(product.bias).mul_(size);
    expect();
  }
}

bool ProductTrial::is_comparable() const {
  return std::all_of(expected_.begin(), expected_.end(), [](const at::Tensor& values) {
    const auto norm = values.norm().item<double>();  // sync: as below
    return std::isfinite(norm) && norm > 0;
  });
}

bool ProductTrial::is_right(const std::function<void()>& compute) const {
  const double bound = tolerance(product_.a.scalar_type());
  try {
    const std::vector<at::Tensor> values = values_of(compute);
    return std::equal(values.begin(), values.end(), expected_.begin(), [bound](const auto& got, const auto& expected) {
      // sync: for every way, once for each kind of product
      return (got - expected).norm().template item<double>() <= bound * expected.norm().template item<double>();
    });
  } catch (const c10::Error&) { return false; }
}

std::vector<at::Tensor> ProductTrial::values_of(const std::function<void()>& compute) const {
  constexpr int64_t kMostValues = 1 << 16;
  std::vector<at::Tensor> results;
  for (const at::Tensor& result : {product_.result, product_.gelu, product_.sums, product_.sums_of_a})
    if (result.defined()) results.push_back(result);
  // What is not written stays NaN; what should add twice has added twice.
  for (at::Tensor& result : results) result.fill_(std::numeric_limits<double>::quiet_NaN());
  if (product_.adds) product_.result.zero_();
  compute();
  compute();
  for (at::Tensor& result : results) {
    const int64_t step = (result.numel() / kMostValues) | 1;  // odd, so that it is not always the same columns
    result = result.flatten().slice(0, 0, std::nullopt, step).to(at::kDouble);
  }
  return results;
}

}  // namespace gpt::ops
