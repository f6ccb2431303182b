#include "row_product_kernel.h"

#include <algorithm>
#include <type_traits>

#include "gpt/simd/float_pair.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

using c10::BFloat16;
using c10::Half;

constexpr int kMostStreamedRows = 4;

// Neighbouring terms of a row of the weight, as many as a pair of vectors has.
template <class W>
struct Terms {
  static FloatPair load(const W* from, int64_t count) { return cpu::load(from, count); }
};

// The first of each two bfloat16 values lies in the lower half of 32 bits, and the second one in the upper half, which is a float32 value
// once the lower half is 0: so a vector of such pairs becomes two of float32 by a shift and a mask, without moving values across it.
template <>
struct Terms<BFloat16> {
  static void arrange(const float* x, int64_t count, float* arranged) {
    constexpr int64_t kSize = FloatPair::size(), kVector = FloatVector::size();
    int64_t begin = 0;
    for (; begin + kSize <= count; begin += kSize) {
      for (int64_t i = 0; i < kVector; ++i) {
        arranged[begin + i] = x[begin + 2 * i];
        arranged[begin + kVector + i] = x[begin + 2 * i + 1];
      }
    }
    std::copy_n(x + begin, count - begin, arranged + begin);
  }
  static FloatPair load(const BFloat16* from, int64_t count) {
    if (count < FloatPair::size()) return cpu::load(from, count);
    const auto pairs = IntVector::loadu(from);
    return {at::vec::cast<float>(pairs << IntVector(16)),
            at::vec::cast<float>(pairs & IntVector(static_cast<int32_t>(0xffff0000)))};
  }
};

// What the vector registers hold the sums of: 4 x 3 pairs where there are 32 registers, otherwise 2 x 2.
constexpr int kTileRows = sizeof(FloatVector) == 64 ? 4 : 2, kTileColumns = sizeof(FloatVector) == 64 ? 3 : 2;

// Rows of x times rows of the weight, in one pass over their terms. Each product has two sums, so that an addition need not wait for the
// one before, in an order that K alone decides. kFetches: asks for the next tile of the weight meanwhile.
template <int kRows, int kColumns, bool kFetches, class W>
void multiply_tile(const RowProductArguments<W>& of, int64_t row, int64_t column) {
  constexpr int64_t kLine = 64 / sizeof(W);
  FloatPair sums[kRows][kColumns];
  const float* x = of.x + row * of.K;
  const W* weight = of.weight + column * of.K;
  const auto add_terms = [&](int64_t k, int64_t count) {
    FloatPair w[kColumns];
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) {
      if constexpr (kFetches) {
        for (int64_t i = 0; i < FloatPair::size(); i += kLine)
          __builtin_prefetch(weight + (j + kTileColumns) * of.K + k + i);
      }
      w[j] = Terms<W>::load(weight + j * of.K + k, count);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const FloatPair terms = cpu::load(x + i * of.K + k, count);
#pragma GCC unroll 4
      for (int j = 0; j < kColumns; ++j) sums[i][j] = fmadd(terms, w[j], sums[i][j]);
    }
  };
  int64_t k = 0;
  for (; k + FloatPair::size() <= of.K; k += FloatPair::size()) add_terms(k, FloatPair::size());
  if (k < of.K) add_terms(k, of.K - k);
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) {
      const float sum = sum_of(sums[i][j].low + sums[i][j].high);
      of.y[(row + i) * of.N + column + j] = of.bias ? sum + static_cast<float>(of.bias[column + j]) : sum;
    }
  }
}

// Calls use() with `rows`, from 1 to kMost, as a constant.
template <int kMost, class Use>
void with_rows(int64_t rows, const Use& use) {
  if constexpr (kMost > 1) {
    if (rows < kMost) return with_rows<kMost - 1>(rows, use);
  }
  use(std::integral_constant<int, kMost>());
}

// One row of the weight after the other, so that it is read as one stream, which the processor fetches ahead by itself.
template <class W>
void multiply_stream(const RowProductArguments<W>& of, int64_t begin, int64_t end) {
  with_rows<kMostStreamedRows>(of.M, [&](auto rows) {
    for (int64_t column = begin; column < end; ++column) multiply_tile<rows, 1, false>(of, 0, column);
  });
}

// A few rows of the weight at a time, which all rows of x find in the cache, so that arithmetic takes the longest.
template <class W>
void multiply_tiles(const RowProductArguments<W>& of, int64_t begin, int64_t end) {
  int64_t column = begin;
  for (; column + kTileColumns <= end; column += kTileColumns) {
    for (int64_t row = 0; row < of.M; row += kTileRows) {
      with_rows<kTileRows>(std::min<int64_t>(kTileRows, of.M - row), [&](auto rows) {
        row == 0 ? multiply_tile<rows, kTileColumns, true>(of, row, column)
                 : multiply_tile<rows, kTileColumns, false>(of, row, column);
      });
    }
  }
  for (; column < end; ++column) {
    for (int64_t row = 0; row < of.M; row += kTileRows) {
      with_rows<kTileRows>(std::min<int64_t>(kTileRows, of.M - row),
                           [&](auto rows) { multiply_tile<rows, 1, false>(of, row, column); });
    }
  }
}

// perf: OPT-31. A stream is faster while the rows of x stay in the innermost cache beside it.
template <class W>
void multiply(const RowProductArguments<W>& of, int64_t begin, int64_t end) {
  constexpr int64_t kMostCachedBytes = 1 << 14;
  const bool streams = of.M <= kMostStreamedRows && of.M * of.K * int64_t{sizeof(float)} <= kMostCachedBytes;
  streams ? multiply_stream(of, begin, end) : multiply_tiles(of, begin, end);
}

}  // namespace

extern const RowProductKernel<float> row_product_float32;
extern const RowProductKernel<BFloat16> row_product_bfloat16;
extern const RowProductKernel<Half> row_product_float16;
const RowProductKernel<float> row_product_float32 = {nullptr, multiply<float>};
const RowProductKernel<BFloat16> row_product_bfloat16 = {Terms<BFloat16>::arrange, multiply<BFloat16>};
const RowProductKernel<Half> row_product_float16 = {nullptr, multiply<Half>};

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
