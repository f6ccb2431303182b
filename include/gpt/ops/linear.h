// y = x W^T + b, whose backward pass adds the weight's gradient into the parameter's own memory inside the product.
//
// The products are those of the faster of ATen's two matrix libraries. ATen sends float32 products on a CPU to MKL, which leaves
// AVX-512 unused on every processor that is not Intel's; there oneDNN, which LibTorch also contains, is twice as fast.
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/parameters/parameters.h"

namespace gpt::ops {

// x (..., K), weight (N, K), bias (N) or undefined -> (..., N). Under autocast the product and its result have 16 bits.
at::Tensor linear(const at::Tensor& x, const Parameter& weight, const at::Tensor& bias = {});

namespace cpu {

// aten: what ATen chooses, which is MKL for float32 on a CPU.
enum class MatrixLibrary { aten, onednn };

// Whether LibTorch can use oneDNN's product here: it needs AVX-512, which ONEDNN_MAX_CPU_ISA may disable.
bool onednn_works();
// As linear(), float32 only, with the library given.
at::Tensor linear(const at::Tensor& x, const Parameter& weight, const at::Tensor& bias, MatrixLibrary library);

}  // namespace cpu
}  // namespace gpt::ops
