// The CPU's residual sum and normalization in vector instructions, row by row. norm_kernel.cpp is compiled for several kinds of
// processor (cmake/CpuKernels.cmake); norm.cpp distributes the rows.
#pragma once

#include <cstdint>

#include "gpt/simd/dropout_mask.h"
#include "ops/rows.h"

namespace gpt::ops::cpu {

template <class T, class B>
using AddNormRows = ops::AddNormRows<T, B, DropoutMask>;
template <class T, class B>
using AddNormGradients = ops::AddNormGradients<T, B, DropoutMask>;

// For the rows from `begin` to before `end`. The backward pass adds to the sums over rows (C).
template <class T, class B>
struct NormKernels {
  void (*forward)(const AddNormRows<T, B>&, int64_t begin, int64_t end);
  void (*backward)(const AddNormGradients<T, B>&, int64_t begin, int64_t end, float* weight_gradient,
                   float* bias_gradient);
};

}  // namespace gpt::ops::cpu
