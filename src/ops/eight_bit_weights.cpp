#include "gpt/ops/eight_bit_weights.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "gpt/products/eight_bit_product.h"

namespace gpt::ops {

const EightBitFactor& EightBitWeights::find(Factors& factors, const parameters::Parameter& weight, bool by_columns) {
  const at::NoGradGuard no_gradients;
  const at::Tensor& value = weight.compute_value();
  const auto [found, is_new] = factors.try_emplace(value.const_data_ptr());
  if (is_new) found->second = second_factor(by_columns ? value.t() : value, type_);
  return found->second;
}

EightBitFactor EightBitWeights::round(const at::Tensor& rows) const { return first_factor(rows, type_); }

at::Tensor EightBitWeights::product(const EightBitFactor& rows, const parameters::Parameter& weight,
                                    const at::Tensor& bias) {
  const at::ScalarType type = weight.compute_value().scalar_type();
  return eight_bit_product(rows, find(by_rows_, weight, /*by_columns=*/false), bias, type);
}

void EightBitWeights::add_input_gradient(at::Tensor& x_gradient, const at::Tensor& gradient,
                                         const parameters::Parameter& weight) {
  const EightBitFactor codes = first_factor(gradient, type_), &factor = find(by_columns_, weight, /*by_columns=*/true);
  if (x_gradient.defined()) {
    eight_bit_product_out(x_gradient, /*adds=*/true, codes, factor);
  } else {
    x_gradient = eight_bit_product(codes, factor, {}, gradient.scalar_type());
  }
}

void EightBitWeights::add_weight_gradient(const parameters::Parameter& weight, const at::Tensor& gradient,
                                          const at::Tensor& rows) const {
  bool adds = weight.begin_contribution();
  for (int64_t begin = 0; begin < rows.size(0); begin += kMostEightBitTerms, adds = true) {
    const int64_t count = std::min(kMostEightBitTerms, rows.size(0) - begin);
    const auto factor = [&](const at::Tensor& of) { return of.narrow(0, begin, count).t(); };
    eight_bit_product_out(weight.gradient(), adds, first_factor(factor(gradient), type_),
                          second_factor(factor(rows), type_));
  }
}

}  // namespace gpt::ops
