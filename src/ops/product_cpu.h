// Matrix products in vector instructions of our own, on a CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/ops/tuned_product.h"

namespace gpt::ops::cpu {

// Whether there are products of this type here that are faster than LibTorch's.
bool has_own_products(at::ScalarType type);

// Whether multiply() takes these factors: bfloat16 values that are neighbours in a sum must lie in pairs.
bool can_multiply(const at::Tensor& a, const at::Tensor& b);

// The product without `gelu`. Factors are float32, or bfloat16 where has_own_products(); the result has their type or is float32.
void multiply(const Product& product);

}  // namespace gpt::ops::cpu
