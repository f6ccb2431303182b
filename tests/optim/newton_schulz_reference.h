// Newton-Schulz in float64, and how far a computation with coarser numbers may be from it.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/mm.h>

#include <cmath>
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
// vectors, is multiplied by differences (p(s) - p(t)) / (s - t), where s is a singular value and t one too, or its negative, or 0. To the
// error so multiplied each iteration adds its own: of S = X X^T, which enters p through b + c (s^2 + t^2) and is multiplied by X; of
// b S + c S S, with three roundings, which is multiplied by X; and of a X + that X. Roundings are independent of each other, as in
// tolerance(): their squares add up, the n of a sum to n, factors count with their mean squares, and the bound is four deviations.
inline Orthogonalized orthogonalized_exactly(const at::Tensor& x, at::ScalarType type, double error) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  const double u = unit_roundoff(type), of_sum = unit_roundoff(at::kFloat);
  const auto norm = [](const at::Tensor& of) { return of.norm().item<double>(); };
  const auto squared = [](double value) { return value * value; };
  const bool is_tall = x.size(0) > x.size(1);
  at::Tensor wide = is_tall ? x.t() : x;
  const auto m = static_cast<double>(wide.size(0)), n = static_cast<double>(wide.size(1));
  wide = wide / norm(wide);
  error += 2 * u;
  for (int i = 0; i < 5; ++i) {
    const at::Tensor singular = at::linalg_svdvals(wide).contiguous();
    const std::vector<double> s(singular.const_data_ptr<double>(),
                                singular.const_data_ptr<double>() + singular.numel());
    const auto difference = [](double p, double q) {
      return a + b * (p * p + p * q + q * q) +
             c * (p * p * p * p + p * p * p * q + p * p * q * q + p * q * q * q + q * q * q * q);
    };
    double growth = 0, of_square = 0;  // mean squares
    for (const double p : s) {
      growth += (n - m) * squared(difference(p, 0)) / (m * n);
      for (const double q : s) {
        growth += (squared(difference(p, q)) + squared(difference(p, -q))) / 2 / (m * n);
        of_square += squared((b + c * (p * p + q * q)) * q) / (m * m);
      }
    }
    const at::Tensor square = at::mm(wide, wide.t()), fourth = at::mm(square, square), factor = b * square + c * fourth,
                     product = at::mm(factor, wide), next = a * wide + product;
    const double size = norm(wide), mean = size / std::sqrt(m);  // of the singular values
    error = std::sqrt(growth * squared(error) +
                      of_square * (n * squared(of_sum * size * size) + squared(u * norm(square))) +
                      squared(mean) * (squared(u * b * norm(square)) + squared(u * c * norm(fourth)) +
                                       m * squared(c * of_sum * norm(square) * norm(square))) +
                      squared(u * a * size) + squared(u * norm(product)) + squared(u * norm(next)) +
                      m * squared(of_sum * norm(factor) * size));
    wide = next;
  }
  return {is_tall ? wide.t() : wide, 4 * error};
}

}  // namespace gpt::test
