// y = x W^T + b, whose backward pass adds the gradients of weight and bias into the parameters' own memory: the weight's inside the
// product, and the bias's, on a GPU, from sums that the operator which takes y made when it wrote the gradient (src/ops/row_sums.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>

#include "gpt/ops/operators.h"
#include "gpt/parameters/parameters.h"
#include "gpt/products/product.h"

namespace gpt::ops {

class EightBitWeights;

// x (..., K), weight (N, K), bias (N) or empty -> (..., N). The product and its result have 16 bits under
// autocast, or where x and the compute_value() of the weight have them.
//
// input: `repeat` keeps nothing of an x that add_norm(), activate() or activate_gated() gave.
// eight_bits: which products are computed in 8 bits; null: none.
at::Tensor linear(const at::Tensor& x, const LinearLayer& layer, ProductInput input = ProductInput::keep,
                  std::shared_ptr<EightBitWeights> eight_bits = nullptr);
inline at::Tensor linear(const at::Tensor& x, const parameters::Parameter& weight,
                         const parameters::Parameter& bias = {}, ProductInput input = ProductInput::keep) {
  return linear(x, LinearLayer{weight, bias}, input);
}

// linear() of the same x with either layer. The backward pass makes one gradient of x: the second product adds to what the first one
// wrote, where autograd would add the gradients that two operators made.
std::pair<at::Tensor, at::Tensor> linear_pair(const at::Tensor& x, const LinearLayer& first, const LinearLayer& second,
                                              ProductInput input = ProductInput::keep,
                                              std::shared_ptr<EightBitWeights> eight_bits = nullptr);

// The activation of linear(). GELU's kernel may be the product's own.
at::Tensor linear_activated(Activation activation, const at::Tensor& x, const LinearLayer& layer,
                            ProductInput input = ProductInput::keep);

// As linear(), where only the backward pass counts: the values of the result are zeros, which take neither time nor memory.
at::Tensor linear_for_backward(const at::Tensor& x, const LinearLayer& layer,
                               std::shared_ptr<EightBitWeights> eight_bits = nullptr);

namespace cpu {

// As linear(), float32 only, with the library given.
at::Tensor linear(const at::Tensor& x, const parameters::Parameter& weight, const parameters::Parameter& bias,
                  MatrixLibrary library);

}  // namespace cpu
}  // namespace gpt::ops
