// Matrix products in vector instructions of our own, on a CPU.
#pragma once

#include "gpt/parameters/pointers.h"
#include "gpt/products/tuned_product.h"
#include "product_kernel.h"

namespace gpt::ops::cpu {

// Whether there is a kernel for a product of these types that this processor has the instructions for, and for factors that lie like
// these: by rows or by columns, and bfloat16 values that are neighbours in a sum in pairs.
bool can_multiply(const Product& product);

// The product without `gelu`, where can_multiply().
void multiply(const Product& product);

// Products that a thread adds at least: below, waking it costs more than it saves.
inline constexpr int64_t kLeastProducts = 1 << 18;

// For a thread, where several products are computed together.
const ProductKernel<float, float>& float32_kernel();
TransposeKernel transpose_kernel();

template <class T>
ProductFactor<T> factor(const at::Tensor& x) {
  const bool lies_by_columns = x.stride(1) != 1;
  return {read<T>(x), x.stride(lies_by_columns ? 1 : 0), lies_by_columns};
}

}  // namespace gpt::ops::cpu
