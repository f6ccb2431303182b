// A row in steps of vectors, on a CPU: what kernels that go through the rows of a matrix share. For kernels that
// cmake/CpuKernels.cmake compiles.
#pragma once

#include <cstdint>
#include <type_traits>

#include "gpt/simd/float_pair.h"
#include "gpt/simd/philox.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {

inline constexpr int64_t kStep = FloatPair::size(), kMaskColumns = 64;

// Calls step(column, count) for all columns; count is a constant but for the last ones.
template <class Step>
void for_each_step(int64_t C, const Step& step) {
  int64_t column = 0;
  for (; column + kStep <= C; column += kStep) step(column, std::integral_constant<int64_t, kStep>{});
  if (column < C) step(column, C - column);
}

// The factors of the dropout mask for the columns of a row from 64 x `columns` on.
inline void row_factors(const DropoutMask& mask, int64_t row, int64_t columns, float* factors) {
  const auto number = static_cast<uint64_t>(mask.first + row);
  dropout_factors(mask, static_cast<uint32_t>(columns), static_cast<uint32_t>(number),
                  static_cast<uint32_t>(number >> 32), factors);
}

// The same for the columns of a row, which are asked for in their order.
class RowMask {
 public:
  RowMask(const DropoutMask& mask, int64_t row) : mask_(mask), row_(row) {}

  FloatPair at(int64_t column) {
    if (column % kMaskColumns == 0) row_factors(mask_, row_, column / kMaskColumns, factors_);
    return load(factors_ + column % kMaskColumns);
  }

 private:
  alignas(64) float factors_[kMaskColumns];
  DropoutMask mask_;
  int64_t row_;
};

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
