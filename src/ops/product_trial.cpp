#include "product_trial.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <limits>

namespace gpt::ops {
namespace {

bool agree(const at::Tensor& values, const at::Tensor& expected) {
  constexpr double kTolerance = 0.05;
  return (values - expected).norm().item<double>() <= kTolerance * expected.norm().item<double>();
}

}  // namespace

ProductTrial::ProductTrial(const Product& product, ComputeProduct by_libtorch) : product_(product) {
  if (product.adds) product_.result = at::empty_like(product.result);
  if (product.bias.defined()) {
    // The model's is zero at first, which would hide one that is missing. This one hides nothing of the product either.
    by_libtorch(product_);
    const at::Tensor size = product_.result.select(0, 0).to(at::kFloat).abs().mean();
    const auto float32 = product.bias.options().dtype(at::kFloat);
    product_.bias = at::arange(product.bias.size(0), float32).sin_().mul_(size).to(product.bias.scalar_type());
  }
  expected_ = values_of([&] { by_libtorch(product_); });
}

bool ProductTrial::is_finite() const {
  return std::all_of(expected_.begin(), expected_.end(),
                     [](const at::Tensor& values) { return values.isfinite().all().item<bool>(); });
}

bool ProductTrial::is_right(const std::function<void()>& compute) const {
  try {
    const std::vector<at::Tensor> values = values_of(compute);
    return std::equal(values.begin(), values.end(), expected_.begin(), agree);
  } catch (const c10::Error&) { return false; }
}

std::vector<at::Tensor> ProductTrial::values_of(const std::function<void()>& compute) const {
  constexpr int64_t kMostValues = 1 << 16;
  std::vector<at::Tensor> results;
  for (const at::Tensor& result : {product_.result, product_.gelu, product_.bias_gradient})
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
