// Factors of the products of matrix_tile.h, from float32 matrices: the same values, or, on processors with dot products of pairs, pairs
// of them rounded to bfloat16. For kernels that cmake/CpuKernels.cmake compiles.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>
#include <type_traits>

#include "gpt/simd/matrix_tile.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {

// What tensors of type T are multiplied as.
#ifdef __AVX512BF16__
template <class T>
using FactorOf = std::conditional_t<std::is_same_v<T, float>, float, BFloat16Pair>;
#else
template <class T>
using FactorOf = float;
#endif

// Columns of a matrix whose rows have `columns` values, each row in whole vectors.
template <class E>
constexpr int64_t factor_columns(int64_t columns) {
  return round_up(columns / Operand<E>::kValues, kColumns);
}

// Three forms of a factor. Of float32 they are the matrix itself, which is there already.
//
// as_rows: pairs along the rows, of which the first `columns` values count; 0 follows them in whole vectors.
// as_terms: pairs of rows, for sums over the rows; 0 follows the last of an odd number.
// as_columns: the transpose of as_rows, by way of it; the numbers of rows and columns are multiples of kColumns.
inline void as_rows(Matrix, int64_t /*rows*/, int64_t /*columns*/, Matrix) {}
inline void as_terms(Matrix, int64_t /*rows*/, int64_t /*columns*/, Matrix) {}
inline void as_columns(Matrix from, int64_t rows, int64_t columns, Matrix /*as_rows*/, Matrix to) {
  transpose(rows, columns, from, to);
}

// Where to write what one of these forms is made from.
inline Matrix source_of(Matrix factor, Matrix /*scratch*/) { return factor; }

#ifdef __AVX512BF16__

inline Matrix source_of(Pairs, Matrix scratch) { return scratch; }

// All of a vector's values, or so many of them: masks of 16 bits are slow on Zen 4.
struct Whole {};

inline __m256i load_bfloat16(const c10::BFloat16* from, Whole) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
inline __m256i load_bfloat16(const c10::BFloat16* from, int64_t count) {
  return _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << count) - 1), from);
}

// Pairs of neighbours of two rows; no second row: with 0.
template <class Count>
__m512i interleaved(const c10::BFloat16* low, const c10::BFloat16* high, Count count) {
  const __m512i second = high ? _mm512_cvtepu16_epi32(load_bfloat16(high, count)) : _mm512_setzero_si512();
  return _mm512_or_si512(_mm512_cvtepu16_epi32(load_bfloat16(low, count)), _mm512_slli_epi32(second, 16));
}

// Rounds 16 values each, to the lower and to the upper half.
inline __m512i rounded(__m512 low, __m512 high) { return std::bit_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)); }

inline void as_rows(Matrix from, int64_t rows, int64_t columns, Pairs to) {
  const auto there = [&](int64_t column) {
    return static_cast<__mmask16>((1u << std::clamp<int64_t>(columns - column, 0, kLanes)) - 1);
  };
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; j += 2 * kLanes) {
      const __m512 low = _mm512_maskz_loadu_ps(there(j), from.row(i) + j),
                   high = _mm512_maskz_loadu_ps(there(j + kLanes), from.row(i) + j + kLanes);
      _mm512_storeu_si512(to.row(i) + j / 2, rounded(low, high));
    }
  }
}

inline void as_terms(Matrix from, int64_t rows, int64_t columns, Pairs to) {
  const __m512i places = _mm512_add_epi32(  // places of two neighbouring values: i and 16 + i
      _mm512_set1_epi32(16 << 16),
      _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                         _mm512_set1_epi32(1 + (1 << 16))));
  for (int64_t i = 0; i < rows; i += 2) {
    for (int64_t j = 0; j < columns; j += kLanes) {
      const __m512 low = _mm512_loadu_ps(from.row(i) + j),
                   high = i + 1 < rows ? _mm512_loadu_ps(from.row(i + 1) + j) : _mm512_setzero_ps();
      _mm512_storeu_si512(to.row(i / 2) + j, _mm512_permutexvar_epi16(places, rounded(low, high)));
    }
  }
}

inline void as_columns(Matrix from, int64_t rows, int64_t columns, Pairs as_rows_too, Pairs to) {
  as_rows(from, rows, columns, as_rows_too);
  // They are moved, not computed with.
  const auto floats = [](Pairs pairs) { return Matrix{reinterpret_cast<float*>(pairs.data), pairs.stride}; };
  transpose(rows, factor_columns<BFloat16Pair>(columns), floats(as_rows_too), floats(to));
}

#endif

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
