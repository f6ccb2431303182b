// y = x W^T + b, whose backward pass adds the weight's gradient into the parameter's own memory inside the product.
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/ops/operators.h"
#include "gpt/ops/product.h"
#include "gpt/parameters/parameters.h"

namespace gpt::ops {

// x (..., K), weight (N, K), bias (N) or undefined -> (..., N). The product and its result have 16 bits under
// autocast, or where x and the compute_value() of the weight have them.
//
// input: `repeat` keeps nothing of an x that add_norm(), activate() or activate_gated() gave.
at::Tensor linear(const at::Tensor& x, const Parameter& weight, const at::Tensor& bias = {},
                  ProductInput input = ProductInput::keep);

// GELU of the same, in its tanh form, by kernels that may be one.
at::Tensor linear_gelu(const at::Tensor& x, const Parameter& weight, const at::Tensor& bias = {},
                       ProductInput input = ProductInput::keep);

// As linear(), where only the backward pass counts: the values of the result are zeros, which take neither time nor memory.
at::Tensor linear_for_backward(const at::Tensor& x, const Parameter& weight, const at::Tensor& bias = {});

namespace cpu {

// As linear(), float32 only, with the library given.
at::Tensor linear(const at::Tensor& x, const Parameter& weight, const at::Tensor& bias, MatrixLibrary library);

}  // namespace cpu
}  // namespace gpt::ops
