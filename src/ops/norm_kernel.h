// The CPU's residual sum and normalization in vector instructions, row by row. norm_kernel.cpp is compiled for several kinds of
// processor (cmake/CpuKernels.cmake); norm_cpu.cpp distributes the rows.
#pragma once

#include <cstdint>

#include "dropout_mask.h"

namespace gpt::ops::cpu {

// n = (s - mean) * reciprocal, which gives normed = n * weight + bias; an RMSNorm takes 0 for the mean.
struct RowStatistics {
  float mean, reciprocal;
};

// Rows of C values of type T, of a branch of type B, and of float32 parameters.
template <class T, class B>
struct AddNormRows {
  bool is_centered;  // LayerNorm; otherwise RMSNorm
  float eps;
  DropoutMask dropout;
  int64_t C;
  const T* x;
  const B* branch;  // null: without
  const float *weight, *bias;
  T *sum, *normed;            // sum is not written without a branch
  RowStatistics* statistics;  // null: not kept
};

template <class T, class B>
struct AddNormGradients {
  bool is_centered;
  DropoutMask dropout;
  int64_t C;
  const T* sum;
  const RowStatistics* statistics;
  const float* weight;
  const T *sum_gradient, *normed_gradient;  // one may be null, which stands for zeros
  T* x_gradient;
  B* branch_gradient;  // null: not wanted
};

// For the rows from `begin` to before `end`. The backward pass adds to the sums over rows (C).
template <class T, class B>
struct NormKernels {
  void (*forward)(const AddNormRows<T, B>&, int64_t begin, int64_t end);
  void (*backward)(const AddNormGradients<T, B>&, int64_t begin, int64_t end, float* weight_gradient,
                   float* bias_gradient);
};

}  // namespace gpt::ops::cpu
