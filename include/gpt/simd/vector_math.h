// Functions of float32 vectors, for kernels that cmake/CpuKernels.cmake compiles.
#pragma once

#include <ATen/cpu/vec/functional_base.h>
#include <ATen/cpu/vec/vec.h>

#include <cstdint>

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {

using FloatVector = at::vec::Vectorized<float>;
using IntVector = at::vec::Vectorized<int32_t>;

// 2^x for x below 127, within 2 units in the last place from -126 on; below it, less than 2^-126, and 0 from -127 on.
//
// With the nearest integer n, 2^x = 2^n 2^f and |f| <= 1/2. The polynomial in f, with 2^0 = 1, has the least relative error, 3e-9,
// a twentieth of a rounding. Adding 1.5 * 2^23 rounds x to n, and leaves n in the lowest bits of the sum. n = -127 makes the
// exponent of 1, which is 127, that of 0.
inline FloatVector exp2(FloatVector x) {
  const FloatVector least(-127.0f), to_integer(12582912.0f);
  const FloatVector y = at::vec::clamp_min(x, least);
  const FloatVector sum = y + to_integer, f = y - (sum - to_integer);
  FloatVector p(1.55946997e-4f);
  p = at::vec::fmadd(p, f, FloatVector(1.34066434e-3f));
  p = at::vec::fmadd(p, f, FloatVector(9.61769279e-3f));
  p = at::vec::fmadd(p, f, FloatVector(5.55031039e-2f));
  p = at::vec::fmadd(p, f, FloatVector(2.40226522e-1f));
  p = at::vec::fmadd(p, f, FloatVector(6.93147242e-1f));
  p = at::vec::fmadd(p, f, FloatVector(1.0f));
  const IntVector exponent = at::vec::cast<int32_t>(sum) << IntVector(23);
  return at::vec::cast<float>(at::vec::cast<int32_t>(p) + exponent);
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
