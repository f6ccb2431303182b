// A row in steps of vectors, on a CPU: what kernels that go through the rows of a matrix share. For kernels that
// cmake/CpuKernels.cmake compiles.
#pragma once

#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "philox.h"
#include "vector_math.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {

using BFloatVector = at::vec::Vectorized<c10::BFloat16>;

// As many values as a vector of bfloat16 holds.
inline constexpr int64_t kVector = FloatVector::size(), kStep = 2 * kVector, kMaskColumns = 64;

struct Pair {
  FloatVector low{0.0f}, high{0.0f};

  friend Pair operator+(const Pair& a, const Pair& b) { return {a.low + b.low, a.high + b.high}; }
  friend Pair operator-(const Pair& a, const Pair& b) { return {a.low - b.low, a.high - b.high}; }
  friend Pair operator*(const Pair& a, const Pair& b) { return {a.low * b.low, a.high * b.high}; }
  friend Pair operator*(const Pair& a, FloatVector b) { return {a.low * b, a.high * b}; }
  friend Pair operator-(const Pair& a, FloatVector b) { return {a.low - b, a.high - b}; }
};

// a b + c
inline Pair fmadd(const Pair& a, const Pair& b, const Pair& c) {
  return {at::vec::fmadd(a.low, b.low, c.low), at::vec::fmadd(a.high, b.high, c.high)};
}

// Loads and stores take `count` <= kStep values; what is loaded is filled up with 0.
inline Pair load(const float* from, int64_t count) {
  if (count == kStep) return {FloatVector::loadu(from), FloatVector::loadu(from + kVector)};
  return {FloatVector::loadu(from, std::min(count, kVector)),
          count > kVector ? FloatVector::loadu(from + kVector, count - kVector) : FloatVector(0.0f)};
}

inline Pair load(const c10::BFloat16* from, int64_t count) {
  const auto [low, high] = at::vec::convert_to_float<c10::BFloat16>(count == kStep ? BFloatVector::loadu(from)
                                                                                   : BFloatVector::loadu(from, count));
  return {low, high};
}

inline void store(const Pair& x, float* to, int64_t count) {
  x.low.store(to, std::min(count, kVector));
  if (count > kVector) x.high.store(to + kVector, count - kVector);
}

inline void store(const Pair& x, c10::BFloat16* to, int64_t count) {
  at::vec::convert_from_float<c10::BFloat16>(x.low, x.high).store(to, count);
}

// Calls step(column, count) for all columns; count is a constant but for the last ones.
template <class Step>
void for_each_step(int64_t C, const Step& step) {
  int64_t column = 0;
  for (; column + kStep <= C; column += kStep) step(column, std::integral_constant<int64_t, kStep>{});
  if (column < C) step(column, C - column);
}

// The factors of the dropout mask for the columns of a row, which are asked for in their order.
class RowMask {
 public:
  RowMask(const DropoutMask& mask, int64_t row) : mask_(mask), row_(row) {}

  Pair at(int64_t column) {
    if (column % kMaskColumns == 0) {
      dropout_factors(mask_, static_cast<uint32_t>(column / kMaskColumns), static_cast<uint32_t>(row_),
                      static_cast<uint32_t>(row_ >> 32), factors_);
    }
    return load(factors_ + column % kMaskColumns, kStep);
  }

 private:
  alignas(64) float factors_[kMaskColumns];
  DropoutMask mask_;
  int64_t row_;
};

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
