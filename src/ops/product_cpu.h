// Matrix products in vector instructions of our own, on a CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/ops/tuned_product.h"

namespace gpt::ops::cpu {

// Whether there are products of this type here that are faster than LibTorch's.
bool has_own_products(at::ScalarType type);

// Whether there is a kernel for these factors and a result of this type: bfloat16 values that are neighbours in a sum must lie in pairs.
bool can_multiply(const at::Tensor& a, const at::Tensor& b, at::ScalarType result);

// The product without `gelu`, where can_multiply(). The processor must have instructions for bfloat16 factors.
void multiply(const Product& product);

}  // namespace gpt::ops::cpu
