// y = x W^T + b, whose backward pass adds the weight's gradient into the parameter's own memory inside the product.
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/ops/product.h"
#include "gpt/parameters/parameters.h"

namespace gpt::ops {

// x (..., K), weight (N, K), bias (N) or undefined -> (..., N). The product and its result have 16 bits under
// autocast, or where x and the compute_value() of the weight have them.
at::Tensor linear(const at::Tensor& x, const Parameter& weight, const at::Tensor& bias = {});

namespace cpu {

// As linear(), float32 only, with the library given.
at::Tensor linear(const at::Tensor& x, const Parameter& weight, const at::Tensor& bias, MatrixLibrary library);

}  // namespace cpu
}  // namespace gpt::ops
