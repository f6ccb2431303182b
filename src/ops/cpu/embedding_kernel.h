// The CPU's embedding in vector instructions, row by row. embedding_kernel.cpp is compiled for several kinds of processor
// (cmake/CpuKernels.cmake); embedding.cpp distributes the rows.
#pragma once

#include <cstdint>

#include "gpt/simd/dropout_mask.h"
#include "ops/rows.h"

namespace gpt::ops::cpu {

template <class T>
using EmbeddingRows = ops::EmbeddingRows<T, DropoutMask>;

// For the rows from `begin` to before `end`.
template <class T>
struct EmbeddingKernels {
  void (*forward)(const EmbeddingRows<T>&, int64_t begin, int64_t end);
  // float32 rows (rows, C) of the gradient times the mask.
  void (*backward)(const DropoutMask& dropout, int64_t C, const T* gradient, int64_t begin, int64_t end, float* rows);
};

}  // namespace gpt::ops::cpu
