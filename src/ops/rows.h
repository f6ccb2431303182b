// What kernels that go through the rows of a matrix are given, on every device. Small: cmake/CpuKernels.cmake says why.
#pragma once

#include <cstdint>

namespace gpt::ops {

// n = (s - mean) * reciprocal, which gives normed = n * weight + bias; an RMSNorm takes 0 for the mean.
struct RowStatistics {
  float mean, reciprocal;
};

// Rows of C values of type T, of a branch of type B, and of float32 parameters. Mask: the device's dropout mask.
template <class T, class B, class Mask>
struct AddNormRows {
  bool is_centered;  // LayerNorm; otherwise RMSNorm
  float eps;
  Mask dropout;
  int64_t C;
  const T* x;
  const B* branch;  // null: without
  const float *weight, *bias;
  T *sum, *normed;            // sum is not written without a branch
  RowStatistics* statistics;  // null: not kept
};

template <class T, class B, class Mask>
struct AddNormGradients {
  bool is_centered;
  Mask dropout;
  int64_t C;
  const T* sum;
  const RowStatistics* statistics;
  const float* weight;
  const T *sum_gradient, *normed_gradient;  // one may be null, which stands for zeros
  T* x_gradient;
  B* branch_gradient;  // null: not wanted
};

// y = (table[id] [+ positions[row % length]]) * mask
template <class T, class Mask>
struct EmbeddingRows {
  Mask dropout;
  int64_t V, C, length;  // the table's rows and columns; a sequence's length
  const int64_t* ids;
  const T *table, *positions;  // positions null: without
  T* y;
};

template <class T>
struct CrossEntropyRows {
  int64_t vocabulary, stride;  // a row's real logits; from one row to the next
  float smoothing;
  T* logits;
  const int64_t* targets;
  float* losses;
  const float* scale;  // the scale of the gradients that replace the logits; null: they are not wanted
};

}  // namespace gpt::ops
