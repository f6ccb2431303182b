// As many values as a vector of bfloat16 has, as two vectors of float32, which tensors of either type are loaded into and stored
// from, and those of float16 loaded. For kernels that cmake/CpuKernels.cmake compiles.
#pragma once

#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstdint>

#include "gpt/simd/vector_math.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {

using BFloatVector = at::vec::Vectorized<c10::BFloat16>;
using HalfVector = at::vec::Vectorized<c10::Half>;

struct FloatPair {
  FloatVector low{0.0f}, high{0.0f};

  static constexpr int64_t size() { return BFloatVector::size(); }

  friend FloatPair operator+(const FloatPair& a, const FloatPair& b) { return {a.low + b.low, a.high + b.high}; }
  friend FloatPair operator-(const FloatPair& a, const FloatPair& b) { return {a.low - b.low, a.high - b.high}; }
  friend FloatPair operator*(const FloatPair& a, const FloatPair& b) { return {a.low * b.low, a.high * b.high}; }
  friend FloatPair operator*(const FloatPair& a, FloatVector b) { return {a.low * b, a.high * b}; }
  friend FloatPair operator-(const FloatPair& a, FloatVector b) { return {a.low - b, a.high - b}; }
};

// a b + c
inline FloatPair fmadd(const FloatPair& a, const FloatPair& b, const FloatPair& c) {
  return {at::vec::fmadd(a.low, b.low, c.low), at::vec::fmadd(a.high, b.high, c.high)};
}

inline FloatPair from_bfloat16(const BFloatVector& x) {
  const auto [low, high] = at::vec::convert_to_float<c10::BFloat16>(x);
  return {low, high};
}

// Rounded to nearest.
inline BFloatVector to_bfloat16(const FloatPair& x) {
  return at::vec::convert_from_float<c10::BFloat16>(x.low, x.high);
}

// Loads and stores take `count` <= FloatPair::size() values; what is loaded is filled up with 0.
inline FloatPair load(const float* from, int64_t count = FloatPair::size()) {
  constexpr int64_t kVector = FloatVector::size();
  if (count == FloatPair::size()) return {FloatVector::loadu(from), FloatVector::loadu(from + kVector)};
  return {FloatVector::loadu(from, std::min(count, kVector)),
          count > kVector ? FloatVector::loadu(from + kVector, count - kVector) : FloatVector(0.0f)};
}

inline FloatPair load(const c10::BFloat16* from, int64_t count = FloatPair::size()) {
  return from_bfloat16(count == FloatPair::size() ? BFloatVector::loadu(from) : BFloatVector::loadu(from, count));
}

inline FloatPair load(const c10::Half* from, int64_t count = FloatPair::size()) {
  const HalfVector x = count == FloatPair::size() ? HalfVector::loadu(from) : HalfVector::loadu(from, count);
  const auto [low, high] = at::vec::convert_to_float<c10::Half>(x);
  return {low, high};
}

inline void store(const FloatPair& x, float* to, int64_t count = FloatPair::size()) {
  constexpr int64_t kVector = FloatVector::size();
  x.low.store(to, std::min(count, kVector));
  if (count > kVector) x.high.store(to + kVector, count - kVector);
}

inline void store(const FloatPair& x, c10::BFloat16* to, int64_t count = FloatPair::size()) {
  to_bfloat16(x).store(to, count);
}

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
