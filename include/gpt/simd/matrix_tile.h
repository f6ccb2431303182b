// Products of small matrices that lie in the cache, of float32 values or, with AVX512_BF16 or AVX512_AMX, of pairs of bfloat16 values, for
// kernels that cmake/CpuKernels.cmake compiles.
#pragma once

#include <ATen/cpu/vec/vec.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gpt/simd/tiles.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {

using FloatVector = at::vec::Vectorized<float>;
inline constexpr int64_t kLanes = FloatVector::size();

// Matrices have a whole number of these columns.
inline constexpr int64_t kColumns = 16;

constexpr int64_t round_down(int64_t n, int64_t multiple) { return n / multiple * multiple; }
constexpr int64_t round_up(int64_t n, int64_t multiple) { return round_down(n + multiple - 1, multiple); }
constexpr int64_t divide_up(int64_t n, int64_t by) { return round_up(n, by) / by; }

// Two bfloat16 values, neighbouring terms of a sum of products; the lower half is the first.
enum class BFloat16Pair : uint32_t {};

// Has room for kMatrixRows rows, or for a multiple of them.
template <class E>
struct MatrixOf {
  E* data;
  int64_t stride;  // from row to row

  E* row(int64_t i) const { return data + i * stride; }
};
using Matrix = MatrixOf<float>;
using Pairs = MatrixOf<BFloat16Pair>;

// The elements of a product's factors.
template <class E>
struct Operand;

template <>
struct Operand<float> {
  static constexpr int64_t kValues = 1;
  using Vector = FloatVector;
  static Vector load(const float* from) { return Vector::loadu(from); }
  static Vector broadcast(float value) { return Vector(value); }
  static FloatVector multiply_add(Vector a, Vector b, FloatVector sum) { return at::vec::fmadd(a, b, sum); }
};

#ifdef __AVX512BF16__
template <>
struct Operand<BFloat16Pair> {
  static constexpr int64_t kValues = 2;
  using Vector = __m512i;
  static Vector load(const BFloat16Pair* from) { return _mm512_loadu_si512(from); }
  static Vector broadcast(BFloat16Pair pair) { return _mm512_set1_epi32(static_cast<int>(pair)); }
  static FloatVector multiply_add(Vector a, Vector b, FloatVector sum) {
    return _mm512_dpbf16_ps(sum, std::bit_cast<__m512bh>(a), std::bit_cast<__m512bh>(b));
  }
};
#endif

inline constexpr int64_t kMatrixRows = 64;

// Rows of the result that are computed together. With two vectors of columns, their sums take 12 of AVX2's 16 registers, and 16
// of AVX-512's 32: as many as hide the latency of a multiplication on two units twice over.
inline constexpr int64_t kTileRows = kLanes == 16 ? 8 : 6;

// Rows and terms that multiply() takes together. What follows the last term, up to a multiple of kStepTerms, is 0. Rows that are packed to
// be terms are filled up to a multiple of kPackedRows.
inline constexpr int64_t kStepRows = kHasTiles ? kTileSide : kTileRows, kStepTerms = kHasTiles ? 2 * kTileSide : 2,
                         kPackedRows = std::max(kColumns, kStepTerms);

// The columns of the result that are needed for some rows, from and to a multiple of kColumns, and the terms that their sums
// have. Where those are pairs, they begin with a whole one, and what follows an odd number of terms is 0.
struct Extent {
  int64_t first_column, last_column, begin, end;
};

// kRows rows and kVectors vectors of a result.
template <int kRows, int kVectors>
struct TileSums {
  static constexpr int64_t kColumns = kVectors * kLanes;
  FloatVector at[kRows][kVectors];

  // Calls work(row, vector, sum).
  template <class Work>
  __attribute__((always_inline)) void for_each(const Work& work) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) work(r, v, at[r][v]);
    }
  }

  // Adds a b; kTransposed: a^T b.
  template <bool kTransposed, class E>
  __attribute__((always_inline)) void add_products(const E* a, int64_t a_stride, const E* b, int64_t b_stride,
                                                   int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      typename Operand<E>::Vector row[kVectors];
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) row[v] = Operand<E>::load(b + k * b_stride + v * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const auto factor = Operand<E>::broadcast(kTransposed ? a[k * a_stride + r] : a[r * a_stride + k]);
#pragma GCC unroll 3
        for (int v = 0; v < kVectors; ++v) at[r][v] = Operand<E>::multiply_add(factor, row[v], at[r][v]);
      }
    }
  }
};

// kRows rows and kVectors vectors of c = a b, or c += a b; kTransposed: of a^T b.
template <int kRows, int kVectors, bool kTransposed, class E>
__attribute__((always_inline)) inline void multiply_tile(const E* a, int64_t a_stride, const E* b, int64_t b_stride,
                                                         float* c, int64_t c_stride, int64_t begin, int64_t end,
                                                         bool add) {
  TileSums<kRows, kVectors> sums;
  sums.for_each([&](int64_t r, int64_t v, FloatVector& sum) {
    sum = add ? FloatVector::loadu(c + r * c_stride + v * kLanes) : FloatVector(0.0f);
  });
  sums.template add_products<kTransposed>(a, a_stride, b, b_stride, begin, end);
  sums.for_each([&](int64_t r, int64_t v, FloatVector& sum) { sum.store(c + r * c_stride + v * kLanes); });
}

template <int kRows, bool kTransposed, class E>
__attribute__((always_inline)) inline void multiply_rows(MatrixOf<E> a, MatrixOf<E> b, Matrix c, int64_t first,
                                                         bool add, Extent extent) {
  const E* from = kTransposed ? a.data + first : a.row(first);
  float* to = c.row(first);
  const int64_t begin = extent.begin / Operand<E>::kValues, end = divide_up(extent.end, Operand<E>::kValues);
  int64_t column = extent.first_column;
  for (; column + 2 * kLanes <= extent.last_column; column += 2 * kLanes) {
    multiply_tile<kRows, 2, kTransposed>(from, a.stride, b.data + column, b.stride, to + column, c.stride, begin, end,
                                         add);
  }
  if constexpr (kLanes == kColumns) {
    if (column < extent.last_column) {
      multiply_tile<kRows, 1, kTransposed>(from, a.stride, b.data + column, b.stride, to + column, c.stride, begin, end,
                                           add);
    }
  }
}

// The transpose of kColumns x kColumns values.
inline void transpose_tile(const float* a, int64_t a_stride, float* result, int64_t result_stride) {
  if constexpr (kLanes == kColumns) {
    // Four times, vectors half the tile apart are interleaved.
    FloatVector rows[kColumns], next[kColumns];
#pragma GCC unroll 16
    for (int i = 0; i < kColumns; ++i) rows[i] = FloatVector::loadu(a + i * a_stride);
#pragma GCC unroll 4
    for (int round = 0; round < 4; ++round) {
#pragma GCC unroll 8
      for (int i = 0; i < kColumns / 2; ++i) {
        std::tie(next[2 * i], next[2 * i + 1]) = at::vec::interleave2(rows[i], rows[i + kColumns / 2]);
      }
#pragma GCC unroll 16
      for (int i = 0; i < kColumns; ++i) rows[i] = next[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < kColumns; ++i) rows[i].store(result + i * result_stride);
  } else {
    at::vec::transpose_mxn<float, kColumns, kColumns>(a, a_stride, result, result_stride);
  }
}

#ifdef GPT_TILES

// Neighbouring tiles of c = a b, or c += a b. a: a tile of their rows for each step of terms, a_step pairs apart.
template <int... kTiles>
__attribute__((always_inline)) inline void multiply_tiles(std::integer_sequence<int, kTiles...>, const BFloat16Pair* a,
                                                          int64_t a_stride, int64_t a_step, const BFloat16Pair* b,
                                                          int64_t b_stride, float* c, int64_t c_stride, int64_t steps,
                                                          bool add) {
  constexpr int64_t kBytes = sizeof(float);
  if (add) {
    (load_tile<kTiles>(c + kTiles * kTileSide, c_stride * kBytes), ...);
  } else {
    (zero_tile<kTiles>(), ...);
  }
  for (int64_t step = 0; step < steps; ++step, a += a_step, b += kTileSide * b_stride) {
    load_tile<4>(a, a_stride * kBytes);
    ((load_tile<5 + kTiles % 3>(b + kTiles * kTileSide, b_stride * kBytes),
      add_tile_product<kTiles, 4, 5 + kTiles % 3>()),
     ...);
  }
  (store_tile<kTiles>(c + kTiles * kTileSide, c_stride * kBytes), ...);
}

// kTileSide rows of c = a b, or c += a b; kTransposed: of a^T b.
template <bool kTransposed>
void multiply_rows_of_tiles(Pairs a, Pairs b, Matrix c, int64_t first, bool add, Extent extent) {
  constexpr int64_t kMostTiles = 4;
  const int64_t begin = extent.begin / kStepTerms * kTileSide,
                steps = divide_up(extent.end, kStepTerms) - extent.begin / kStepTerms;
  const BFloat16Pair* rows = a.row(first) + begin;
  int64_t stride = a.stride, step = kTileSide;
  alignas(64) BFloat16Pair transposed[kMatrixRows / kStepTerms * kTilePairs];
  if constexpr (kTransposed) {  // pairs are moved as floats
    rows = transposed, stride = kTileSide, step = kTilePairs;
    for (int64_t i = 0; i < steps; ++i) {
      transpose_tile(reinterpret_cast<const float*>(a.row(begin + i * kTileSide) + first), a.stride,
                     reinterpret_cast<float*>(transposed + i * kTilePairs), kTileSide);
    }
  }
  const BFloat16Pair* terms = b.row(begin);
  for (int64_t column = extent.first_column; column < extent.last_column; column += kMostTiles * kTileSide) {
    const auto tiles = [&](auto sequence) {
      multiply_tiles(sequence, rows, stride, step, terms + column, b.stride, c.row(first) + column, c.stride, steps,
                     add);
    };
    switch ((extent.last_column - column) / kTileSide) {
      case 1: tiles(std::make_integer_sequence<int, 1>()); break;
      case 2: tiles(std::make_integer_sequence<int, 2>()); break;
      case 3: tiles(std::make_integer_sequence<int, 3>()); break;
      default: tiles(std::make_integer_sequence<int, kMostTiles>());
    }
  }
}

#endif

// The first `rows` rows, up to kMatrixRows, of c = a b, or c += a b, and some more up to a whole tile; kTransposed: of a^T b.
// extent_of(first, last) says what is needed of the rows from `first` to before `last`; meanwhile() is called once for every
// kTileRows rows.
template <bool kTransposed, class E, class ExtentOf, class Meanwhile>
__attribute__((noinline)) void multiply(int64_t rows, MatrixOf<E> a, MatrixOf<E> b, Matrix c, bool add,
                                        ExtentOf extent_of, Meanwhile& meanwhile) {
  constexpr int64_t kRest = kMatrixRows % kTileRows;
  int64_t first = 0;
#ifdef GPT_TILES
  if constexpr (std::is_same_v<E, BFloat16Pair>) {
    for (; first < rows; first += kStepRows) {
      meanwhile(), meanwhile();
      multiply_rows_of_tiles<kTransposed>(a, b, c, first, add, extent_of(first, first + kStepRows));
    }
    return;
  }
#endif
  for (; first < std::min(rows, kMatrixRows - kRest); first += kTileRows) {
    meanwhile();
    multiply_rows<kTileRows, kTransposed>(a, b, c, first, add, extent_of(first, first + kTileRows));
  }
  if constexpr (kRest > 0) {
    if (first < rows) multiply_rows<kRest, kTransposed>(a, b, c, first, add, extent_of(first, first + kRest));
  }
}

// a (rows, columns) -> its transpose; both numbers are multiples of kColumns.
inline void transpose(int64_t rows, int64_t columns, Matrix a, Matrix result) {
  for (int64_t i = 0; i < rows; i += kColumns) {
    for (int64_t j = 0; j < columns; j += kColumns) {
      transpose_tile(a.row(i) + j, a.stride, result.row(j) + i, result.stride);
    }
  }
}

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
