// Products of small float32 matrices that lie in the cache, for kernels that cmake/CpuKernels.cmake compiles.
#pragma once

#include <ATen/cpu/vec/vec.h>

#include <algorithm>
#include <cstdint>

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {

using FloatVector = at::vec::Vectorized<float>;
inline constexpr int64_t kLanes = FloatVector::size();

// Matrices have a whole number of these columns.
inline constexpr int64_t kColumns = 16;

inline int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

struct Matrix {
  float* data;
  int64_t stride;  // from row to row
};

// Rows of the result that are computed together: with two vectors of columns, their sums take 12 of AVX2's 16 registers.
inline constexpr int64_t kTileRows = 6;

// The columns of the result that are needed for some rows, a multiple of kColumns, and the terms that their sums have.
struct Extent {
  int64_t columns, begin, end;
};

// kRows rows and kVectors vectors of c = a b, or c += a b; kTransposed: of a^T b.
template <int kRows, int kVectors, bool kTransposed>
__attribute__((always_inline)) inline void multiply_tile(const float* a, int64_t a_stride, const float* b,
                                                         int64_t b_stride, float* c, int64_t c_stride, int64_t begin,
                                                         int64_t end, bool add) {
  FloatVector sum[kRows][kVectors];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = add ? FloatVector::loadu(c + r * c_stride + v * kLanes) : FloatVector(0.0f);
    }
  }
  for (int64_t k = begin; k < end; ++k) {
    FloatVector row[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) row[v] = FloatVector::loadu(b + k * b_stride + v * kLanes);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const FloatVector factor(kTransposed ? a[k * a_stride + r] : a[r * a_stride + k]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[r][v] = at::vec::fmadd(factor, row[v], sum[r][v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sum[r][v].store(c + r * c_stride + v * kLanes);
  }
}

template <int kRows, bool kTransposed>
__attribute__((noinline)) void multiply_rows(const float* a, int64_t a_stride, Matrix b, float* c, int64_t c_stride,
                                             Extent extent, bool add) {
  int64_t column = 0;
  for (; column + 2 * kLanes <= extent.columns; column += 2 * kLanes) {
    multiply_tile<kRows, 2, kTransposed>(a, a_stride, b.data + column, b.stride, c + column, c_stride, extent.begin,
                                         extent.end, add);
  }
  if constexpr (kLanes == kColumns) {
    if (column < extent.columns) {
      multiply_tile<kRows, 1, kTransposed>(a, a_stride, b.data + column, b.stride, c + column, c_stride, extent.begin,
                                           extent.end, add);
    }
  }
}

// The first `rows` rows of c = a b, or c += a b; kTransposed: of a^T b. extent(first, last) says what is needed of the rows
// from `first` to before `last`; meanwhile() is called once for every kTileRows rows.
template <bool kTransposed, class ExtentOf, class Meanwhile>
void multiply(int64_t rows, Matrix a, Matrix b, Matrix c, bool add, const ExtentOf& extent_of, Meanwhile& meanwhile) {
  for (int64_t first = 0; first < rows; first += kTileRows) {
    const int64_t last = std::min(first + kTileRows, rows);
    const Extent extent = extent_of(first, last);
    const float* from = a.data + (kTransposed ? first : first * a.stride);
    float* to = c.data + first * c.stride;
    meanwhile();
    switch (last - first) {
      case 1: multiply_rows<1, kTransposed>(from, a.stride, b, to, c.stride, extent, add); break;
      case 2: multiply_rows<2, kTransposed>(from, a.stride, b, to, c.stride, extent, add); break;
      case 3: multiply_rows<3, kTransposed>(from, a.stride, b, to, c.stride, extent, add); break;
      case 4: multiply_rows<4, kTransposed>(from, a.stride, b, to, c.stride, extent, add); break;
      case 5: multiply_rows<5, kTransposed>(from, a.stride, b, to, c.stride, extent, add); break;
      default: multiply_rows<kTileRows, kTransposed>(from, a.stride, b, to, c.stride, extent, add);
    }
  }
}

// a (rows, columns) -> its transpose; both numbers are multiples of kColumns.
inline void transpose(int64_t rows, int64_t columns, Matrix a, Matrix result) {
  for (int64_t i = 0; i < rows; i += kColumns) {
    for (int64_t j = 0; j < columns; j += kColumns) {
      at::vec::transpose_mxn<float, kColumns, kColumns>(a.data + i * a.stride + j, a.stride,
                                                        result.data + j * result.stride + i, result.stride);
    }
  }
}

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
