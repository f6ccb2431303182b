// The matrix products of the operators that have a weight. On a CPU they are LibTorch's or, where those are slower, our own. LibTorch
// computes float32 products by MKL, which leaves AVX-512 unused on every processor that is not Intel's, and bfloat16 products by oneDNN.
// On a GPU they are LibTorch's too, or tuned (gpt/products/tuned_product.h).
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/parameters/parameters.h"
#include "gpt/products/tuned_product.h"

namespace gpt::ops {
namespace cpu {

// aten: the library that ATen chooses; own: our kernels (src/products/product_cpu.h), and ATen's choice for what they cannot compute.
enum class MatrixLibrary { aten, own };

// Whether a bfloat16 product is one of float32 first, in memory of its own, that is rounded afterwards: so does oneDNN, which ATen
// uses for it, on a processor that has AVX-512 but no instructions for bfloat16.
bool rounds_products_from_float32();

// Whether a bfloat16 product is added to a float32 gradient inside the product here, as on a GPU, and not made apart first.
bool adds_bfloat16_products();

// Bytes that a product of this type takes beside its factors and its result, at most: the blocks that threads pack. Those of oneDNN were
// measured, for the products of models of width 128 to 768.
double product_workspace(at::ScalarType type);

}  // namespace cpu

// The library for products of `x` (..., K) with a weight.
cpu::MatrixLibrary product_library(const at::Tensor& x);

// x in the type that autocast, where it is on, gives to products.
at::Tensor in_product_type(const at::Tensor& x);

// a (M, K) times b (K, N).
at::Tensor product(const at::Tensor& a, const at::Tensor& b, cpu::MatrixLibrary library);
// The same into `result` (M, N), which may have another type.
void product_out(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b, cpu::MatrixLibrary library);

// Adds a b to `result` (M, N), which has their type or float32, inside the product: the sum of both is rounded once.
void add_product(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b, cpu::MatrixLibrary library);

// rows (M, K) times weight^T (K, N), plus the bias (N), if that is defined. `gelu`, if it is not null, becomes GELU of that (M, N)
// where it costs least to compute it here, by the product's kernel or by `gelu_kernel`, and otherwise stays undefined.
at::Tensor product_with_bias(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias,
                             cpu::MatrixLibrary library, at::Tensor* gelu = nullptr, GeluKernel gelu_kernel = nullptr);

// The gradient of x (M, N) where a (M, K) times b (K, N) is that of GELU(x), and the sums of its columns, which are written to `sums` (N);
// all of one type. The product's kernel multiplies by the slope, or `kernel` does.
at::Tensor product_through_gelu(const at::Tensor& a, const at::Tensor& b, const at::Tensor& x, const at::Tensor& sums,
                                GeluBackwardKernel kernel);

// Adds gradient^T rows to the gradient of `weight`, from `gradient` (M, N) and `rows` (M, K). `sums` (N), of the type of the weight's
// gradient, becomes the sums of the columns of `gradient`, by the product's kernel or by `kernel`; or it is undefined.
void accumulate_product(const parameters::Parameter& weight, const at::Tensor& gradient, const at::Tensor& rows,
                        cpu::MatrixLibrary library, const at::Tensor& sums = {}, SumsKernel kernel = nullptr);

}  // namespace gpt::ops
