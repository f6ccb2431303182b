// Newton-Schulz in float64, and how far a computation with coarser numbers may be from it.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "support/tolerance.h"

namespace gpt::test {

struct Orthogonalized {
  at::Tensor value;  // float64
  double error;      // of the other computation, in the Frobenius norm
};

// x (m, n) in float64, of which the other computation knows a part `error` less exactly. It rounds to `type`, and its products add in
// float32.
//
// An iteration changes each singular value s to p(s) = a s + b s^3 + c s^5. To first order an error of X, in the basis of its singular
// vectors, is multiplied by differences (p(s) - p(t)) / (s - t), where s is a singular value and t one too, or its negative, or 0: their
// largest, as they are, is how the error grows. Each iteration adds the roundings of its own: of S = X X^T, which enter p through
// b + c (s^2 + t^2) and are multiplied by X; of b S + c S S, three, multiplied by X; and of a X + that X.
inline Orthogonalized orthogonalized_exactly(const at::Tensor& x, at::ScalarType type, double error) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  const double u = unit_roundoff(type), of_sum = unit_roundoff(at::kFloat);
  const auto norm = [](const at::Tensor& of) { return of.norm().item<double>(); };
  const bool is_tall = x.size(0) > x.size(1);
  at::Tensor wide = is_tall ? x.t() : x;
  const auto m = static_cast<double>(wide.size(0)), n = static_cast<double>(wide.size(1));
  wide = wide / norm(wide);
  error += 2 * u;
  for (int i = 0; i < 5; ++i) {
    const at::Tensor singular = at::linalg_svdvals(wide).contiguous();
    std::vector<double> s(singular.const_data_ptr<double>(), singular.const_data_ptr<double>() + singular.numel());
    double growth = 0, of_square = 0;
    for (const double p : s) {
      for (const double q : s) {
        of_square = std::max(of_square, std::abs(b + c * (p * p + q * q)));
        for (const double t : {q, -q, 0.0}) {
          const double cubic = p * p + p * t + t * t,
                       quintic = p * p * p * p + p * p * p * t + p * p * t * t + p * t * t * t + t * t * t * t;
          growth = std::max(growth, std::abs(a + b * cubic + c * quintic));
        }
      }
    }
    const at::Tensor square = at::mm(wide, wide.t()), fourth = at::mm(square, square), factor = b * square + c * fourth,
                     product = at::mm(factor, wide), next = a * wide + product;
    const double largest = s.front(), size = norm(wide);
    const double local =
        largest * of_square * (n * of_sum * size * size + u * norm(square)) +
        largest * (3 * u * (-b * norm(square) + c * norm(fourth)) + c * m * of_sum * norm(square) * norm(square)) +
        u * (a * size + norm(product) + norm(next)) + m * of_sum * norm(factor) * size;
    error = growth * error + local;
    wide = next;
  }
  return {is_tall ? wide.t() : wide, error};
}

}  // namespace gpt::test
