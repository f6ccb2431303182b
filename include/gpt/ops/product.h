// The matrix products of the operators that have a weight, by the faster of ATen's two libraries. ATen sends float32 products on
// a CPU to MKL, which leaves AVX-512 unused on every processor that is not Intel's; there oneDNN, which LibTorch also contains, is
// twice as fast.
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/parameters/parameters.h"

namespace gpt::ops {
namespace cpu {

// aten: what ATen chooses, which is MKL for float32 on a CPU.
enum class MatrixLibrary { aten, onednn };

// Whether LibTorch can use oneDNN's product here: it needs AVX-512, which ONEDNN_MAX_CPU_ISA may disable.
bool onednn_works();

// Whether a bfloat16 product is one of float32 first, in memory of its own, that is rounded afterwards: so does oneDNN, which ATen
// uses for it, on a processor that has AVX-512 but no instructions for bfloat16.
bool rounds_products_from_float32();

}  // namespace cpu

// The library for products of `x` (..., K) with a weight.
cpu::MatrixLibrary product_library(const at::Tensor& x);

// x in the type that autocast, where it is on, gives to products.
at::Tensor in_product_type(const at::Tensor& x);

// a (M, K) times b (K, N).
at::Tensor product(const at::Tensor& a, const at::Tensor& b, cpu::MatrixLibrary library);
// The same into `result` (M, N), which may have another type.
void product_out(at::Tensor result, const at::Tensor& a, const at::Tensor& b, cpu::MatrixLibrary library);

// Adds gradient^T rows to the gradient of `weight`.
void accumulate_product(const Parameter& weight, const at::Tensor& gradient, const at::Tensor& rows,
                        cpu::MatrixLibrary library);

}  // namespace gpt::ops
