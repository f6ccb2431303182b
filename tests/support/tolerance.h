// How far a computed value may lie from the exact one: the one place where tests get their tolerances from.
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>

namespace gpt::test {

// In float64 on the CPU; an undefined tensor stays one.
inline at::Tensor exact(const at::Tensor& x) { return x.defined() ? x.detach().cpu().to(at::kDouble) : x; }

// Unit roundoff: the largest relative error of one rounding.
inline double unit_roundoff(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble: return std::ldexp(1.0, -53);
    case at::kFloat: return std::ldexp(1.0, -24);
    case at::kHalf: return std::ldexp(1.0, -11);
    case at::kBFloat16: return std::ldexp(1.0, -8);
    default: return 0.0;
  }
}

// The largest absolute error of rounding a value near zero: half the smallest number above it.
inline double underflow(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf: return std::ldexp(1.0, -25);
    case at::kBFloat16: return std::ldexp(1.0, -134);
    default: return std::ldexp(1.0, -150);
  }
}

// Bound on the error of a value of `magnitude` that `roundings` roundings in `dtype` went into one after another (the
// length of a sum, plus the operations around it). Their errors add like a random walk: lambda sqrt(n) u (Higham and
// Mary, 2019, "A new approach to probabilistic rounding error analysis"); with lambda = 4 the chance of one value
// exceeding it is below 1e-3 even for the bound itself, and the bound is far from attained.
inline double tolerance(at::ScalarType dtype, int64_t roundings, double magnitude = 1.0) {
  return 4.0 * std::sqrt(static_cast<double>(roundings)) * unit_roundoff(dtype) * magnitude;
}

}  // namespace gpt::test
