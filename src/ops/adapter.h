// Low-rank adapters of products with frozen weights (LoRA), in rows (M, K) and products (M, N).
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/ops/operators.h"
#include "gpt/products/product.h"

namespace gpt::ops {

// x A^T times the scale, with the adapter's dropout of x, of which a sample has so many rows: (M, rank for each of the outputs' pieces).
at::Tensor narrowed(const Adapter& adapter, const at::Tensor& rows, int64_t of_sample, cpu::MatrixLibrary library);

// Adds to a product (M, N) what the adapter makes of the narrowed rows.
void add_adapter(const Adapter& adapter, const at::Tensor& product, const at::Tensor& narrow);
// The same of x (..., T, K), with a new tensor, by LibTorch's operators, which autograd records; but for the mask of dropout, which is ours.
at::Tensor plus_adapter(const Adapter& adapter, const at::Tensor& product, const at::Tensor& x);

// From the gradient (M, N) of the product: adds to those of A and B, and to that of x (M, K), where it is defined.
void add_adapter_gradients(const Adapter& adapter, const at::Tensor& gradient, const at::Tensor& rows,
                           int64_t of_sample, const at::Tensor& narrow, const at::Tensor& x_gradient,
                           cpu::MatrixLibrary library);

}  // namespace gpt::ops
