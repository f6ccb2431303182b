// A part of a matrix product in vector instructions, for one thread. product_kernel.cpp is compiled for several kinds of processor
// (cmake/CpuKernels.cmake); product_cpu.cpp allocates and distributes the work.
#pragma once

#include <cstdint>

namespace gpt::ops::cpu {

// A factor (rows, columns). Neighbours of a row lie next to each other, or, is_transposed, those of a column; `stride` is from row to
// row, or from column to column.
template <class T>
struct ProductFactor {
  const T* data;
  int64_t stride;
  bool is_transposed;

  const T* at(int64_t row, int64_t column) const {
    return is_transposed ? data + column * stride + row : data + row * stride + column;
  }
};

// result = a b + bias, or result += a b, of any shape. Sums are float32 and are rounded once.
template <class T, class R>
struct ProductArguments {
  int64_t M, K, N;
  ProductFactor<T> a, b;  // (M, K), (K, N); bfloat16 rows of `a` have an even number of terms and an even stride
  R* result;              // (M, N)
  int64_t result_stride;  // from row to row
  bool adds;
  const R* bias;  // (N) or null
};

// The rows and columns of the result that a thread computes.
struct ProductPart {
  int64_t first_row, last_row, first_column, last_column;
};

// The kernel for factors of type T and results of type R.
template <class T, class R>
struct ProductKernel {
  // Rows that are computed together, and values of a vector: parts that begin with a multiple of both leave no rests. Columns whose terms
  // are packed together.
  int64_t tile_rows, lanes, panel_columns;
  // Packing a column of the second factor takes as long as multiplying it with so many rows.
  int64_t packing_rows;
  // Floats of scratch memory, aligned to 64 bytes, that a part of so many rows needs.
  int64_t (*scratch)(const ProductArguments<T, R>&, int64_t rows);
  void (*multiply)(const ProductArguments<T, R>&, const ProductPart&, float* scratch);
};

// Writes the transpose of a (rows, columns) to `to`; strides are from row to row.
using TransposeKernel = void (*)(const float* a, int64_t stride, int64_t rows, int64_t columns, float* to,
                                 int64_t to_stride);

}  // namespace gpt::ops::cpu
