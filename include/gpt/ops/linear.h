// y = x W^T + b, like at::linear, but with the faster of ATen's two matrix libraries on a CPU. ATen sends float32 products to
// MKL, which leaves AVX-512 unused on every processor that is not Intel's; there oneDNN, which LibTorch also contains, is
// twice as fast. Everything else (CUDA, autocast, 16 bits, a few rows when decoding) is at::linear.
#pragma once

#include <ATen/core/Tensor.h>

namespace gpt::ops {

// x (..., K), weight (N, K), bias (N) or undefined -> (..., N).
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

namespace cpu {

// Whether LibTorch can use oneDNN's product here: it needs AVX-512, which ONEDNN_MAX_CPU_ISA may disable.
bool onednn_works();
// The oneDNN version: float32 only. Differentiable.
at::Tensor linear_onednn(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

}  // namespace cpu
}  // namespace gpt::ops
