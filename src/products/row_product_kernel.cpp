#include "row_product_kernel.h"

#include <algorithm>

#include "gpt/simd/float_pair.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

using c10::BFloat16;
using c10::Half;

// Neighbouring terms of a row of the weight, as many as a pair of vectors has.
template <class W>
struct Terms {
  static FloatPair load(const W* from, int64_t count) { return cpu::load(from, count); }
};

// The first of each two bfloat16 values lies in the lower half of 32 bits, and the second one in the upper half, which is a float32 value
// once the lower half is 0: so a vector of such pairs becomes two of float32 by a shift and a mask, without moving values across it.
template <>
struct Terms<BFloat16> {
  static void arrange(float* x, int64_t count) {
    constexpr int64_t kSize = FloatPair::size(), kVector = FloatVector::size();
    for (int64_t begin = 0; begin + kSize <= count; begin += kSize) {
      float values[kSize];
      std::copy_n(x + begin, kSize, values);
      for (int64_t i = 0; i < kVector; ++i) x[begin + i] = values[2 * i], x[begin + kVector + i] = values[2 * i + 1];
    }
  }
  static FloatPair load(const BFloat16* from, int64_t count) {
    if (count < FloatPair::size()) return cpu::load(from, count);
    const auto pairs = IntVector::loadu(from);
    return {at::vec::cast<float>(pairs << IntVector(16)),
            at::vec::cast<float>(pairs & IntVector(static_cast<int32_t>(0xffff0000)))};
  }
};

// Rows of x times rows of the weight, in one pass over their terms. Each product has two sums, and there are at least eight sums in all,
// so that an addition need not wait for the one before.
template <int kRows, int kColumns, class W>
void multiply_tile(const RowProductArguments<W>& of, int64_t row, int64_t column) {
  FloatPair sums[kRows][kColumns];
  const float* x = of.x + row * of.K;
  const W* weight = of.weight + column * of.K;
  const auto add_terms = [&](int64_t k, int64_t count) {
    FloatPair terms[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) terms[i] = cpu::load(x + i * of.K + k, count);
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) {
      // perf: OPT-31. The same terms of the next tile: rows are so short that the processor by itself begins to fetch each too late.
      __builtin_prefetch(weight + (j + kColumns) * of.K + k);
      const FloatPair w = Terms<W>::load(weight + j * of.K + k, count);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) sums[i][j] = fmadd(terms[i], w, sums[i][j]);
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

template <int kRows, class W>
void multiply_rows(const RowProductArguments<W>& of, int64_t row, int64_t begin, int64_t end) {
  constexpr int kColumns = 4 / kRows;
  int64_t column = begin;
  for (; column + kColumns <= end; column += kColumns) multiply_tile<kRows, kColumns>(of, row, column);
  for (; column < end; ++column) multiply_tile<kRows, 1>(of, row, column);
}

// A few rows of the weight at a time: all rows of x find them in the cache.
template <class W>
void multiply(const RowProductArguments<W>& of, int64_t begin, int64_t end) {
  constexpr int64_t kStep = 4, kMost = 4;
  for (int64_t column = begin; column < end; column += kStep) {
    const int64_t last = std::min(end, column + kStep);
    int64_t row = 0;
    for (; row + kMost <= of.M; row += kMost) multiply_rows<4>(of, row, column, last);
    if (row + 2 <= of.M) multiply_rows<2>(of, row, column, last), row += 2;
    if (row < of.M) multiply_rows<1>(of, row, column, last);
  }
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
