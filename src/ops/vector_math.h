// Functions of float32 vectors, for kernels that cmake/CpuKernels.cmake compiles.
#pragma once

#include <ATen/cpu/vec/functional_base.h>
#include <ATen/cpu/vec/vec.h>

#include <cstdint>

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {

using FloatVector = at::vec::Vectorized<float>;
using IntVector = at::vec::Vectorized<int32_t>;

// 2^x for x below 127, within 2 units in the last place; 0 below -126.
//
// With the nearest integer n, 2^x = 2^n 2^f and |f| <= 1/2. Of the series of 2^f in f ln 2, the first term left out is
// (ln 2 / 2)^8 / 8! = 5e-9, a tenth of a rounding. Adding 1.5 * 2^23 rounds x to n, and leaves n in the lowest bits of the sum.
inline FloatVector exp2(FloatVector x) {
  const FloatVector least(-126.0f), to_integer(12582912.0f);
  const FloatVector y = at::vec::clamp_min(x, least);
  const FloatVector sum = y + to_integer, f = y - (sum - to_integer);
  FloatVector p(1.5252734e-5f);  // (ln 2)^7 / 7!
  p = at::vec::fmadd(p, f, FloatVector(1.5403530e-4f));
  p = at::vec::fmadd(p, f, FloatVector(1.3333558e-3f));
  p = at::vec::fmadd(p, f, FloatVector(9.6181291e-3f));
  p = at::vec::fmadd(p, f, FloatVector(5.5504109e-2f));
  p = at::vec::fmadd(p, f, FloatVector(2.4022651e-1f));
  p = at::vec::fmadd(p, f, FloatVector(6.9314718e-1f));
  p = at::vec::fmadd(p, f, FloatVector(1.0f));
  const IntVector exponent = at::vec::cast<int32_t>(sum) << IntVector(23);
  const FloatVector power = at::vec::cast<float>(at::vec::cast<int32_t>(p) + exponent);
  return FloatVector::blendv(power, FloatVector(0.0f), x < least);
}

inline float maximum_of(FloatVector x) {
  return at::vec::vec_reduce_all<float>([](const FloatVector& a,
                                           const FloatVector& b) { return at::vec::clamp_min(a, b); },
                                        x);
}

inline float sum_of(FloatVector x) {
  return at::vec::vec_reduce_all<float>([](const FloatVector& a, const FloatVector& b) { return a + b; }, x);
}

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
