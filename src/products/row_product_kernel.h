// The product of few rows with a weight in vector instructions, for one thread. row_product_kernel.cpp is compiled for several kinds of
// processor (cmake/CpuKernels.cmake); row_product.cpp distributes the work.
#pragma once

#include <cstdint>

namespace gpt::ops::cpu {

// y = x weight^T + bias. Sums are float32.
template <class W>
struct RowProductArguments {
  int64_t M, K, N;
  const float* x;   // (M, K), arranged
  const W* weight;  // (N, K)
  const W* bias;    // (N) or null
  float* y;         // (M, N)
};

template <class W>
struct RowProductKernel {
  // Puts `count` values of a row of x into the order in which the kernel takes them; null: they are in it.
  void (*arrange)(const float* x, int64_t count, float* arranged);
  // The columns from `begin` to before `end` of y.
  void (*multiply)(const RowProductArguments<W>& product, int64_t begin, int64_t end);
};

}  // namespace gpt::ops::cpu
