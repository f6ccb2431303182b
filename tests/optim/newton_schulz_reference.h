// Newton-Schulz in float64, and how far a computation with coarser numbers may be from it.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <vector>

#include "support/tolerance.h"

namespace gpt::test {

struct Orthogonalized {
  at::Tensor value;  // float64
  double error;      // of the other computation, in the Frobenius norm
};

// How far P X is from exact where G, F and P (newton_schulz.h) are float32, for X of these singular values (m) and n columns, whose norm is
// 1. In the basis of the singular vectors an error d of G becomes (b + c (g_i + g_j)) d in F, and so on: products of a sum and what is
// multiplied by it. Roundings are spread evenly over a matrix; those of P that came by G and by P itself are added as they are.
inline double error_of_squares(const at::Tensor& singular, double n) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  const double u = unit_roundoff(at::kFloat), m = static_cast<double>(singular.numel());
  const auto squared = [](double value) { return value * value; };
  const auto norm = [](const at::Tensor& of) { return of.norm().item<double>(); };
  // Mean square of the roundings of a product whose factors and result have these norms.
  const auto rounding = [&](double first, double second, double result, double terms) {
    return (terms * squared(u * first * second) + squared(u * result)) / (m * m);
  };
  const auto row = [](const at::Tensor& of) { return of.unsqueeze(1); };
  at::Tensor g = singular.square(), p = at::ones_like(g),
             of_p = at::zeros({singular.numel(), singular.numel()}, at::kDouble),
             of_g = at::full_like(of_p, rounding(1, 1, 3 * norm(g), n)).sqrt();  // and of what it is multiplied by
  for (int i = 0; i < 5; ++i) {
    const at::Tensor f = a + b * g + c * g * g, slope = b + c * (row(g) + g), h = f * g;
    const double of_f = squared(c) * rounding(norm(g), norm(g), 0, m) + 2 * rounding(0, 0, norm(f) + norm(b * g), 0);
    of_p = ((p * slope).abs() * of_g + row(f).abs() * of_p)
               .square()
               .add(p.square() * of_f + (i > 0 ? rounding(norm(f), norm(p), norm(f * p), m) : 0))
               .sqrt();
    const at::Tensor by_f = h + row(f) * g;
    of_g = ((by_f * slope + row(f).square()) * of_g)
               .square()
               .add(by_f.square() * of_f + row(f).square() * rounding(norm(f), norm(g), norm(h), m) +
                    rounding(norm(f), norm(h), norm(f * h), m))
               .sqrt();
    p = p * f, g = f * h;
  }
  const double result = norm(p * singular);
  return std::sqrt((of_p * singular).square().sum().item<double>() + m * squared(u * norm(p)) +
                   squared(4 * u * result));
}

// x (m, n) in float64, of which the other computation knows a part `error` less exactly. It rounds to `type`, and its products add in
// float32; `by_squares` as on a CPU in float32.
//
// An iteration changes each singular value s to p(s) = a s + b s^3 + c s^5. To first order an error of X, in the basis of its singular
// vectors, is multiplied by differences (p(s) - p(t)) / (s - t), where s is a singular value and t one too, or its negative, or 0. To the
// error so multiplied each iteration adds its own: of S = X X^T, which enters p through b + c (s^2 + t^2) and is multiplied by X; of
// b S + c S S, with three roundings, which is multiplied by X; and of a X + that X. Roundings are independent of each other, as in
// tolerance(): their squares add up, the n of a sum to n, factors count with their mean squares, and the bound is four deviations.
inline Orthogonalized orthogonalized_exactly(const at::Tensor& x, at::ScalarType type, double error, bool by_squares) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  const double u = unit_roundoff(type), of_sum = unit_roundoff(at::kFloat);
  const auto norm = [](const at::Tensor& of) { return of.norm().item<double>(); };
  const auto squared = [](double value) { return value * value; };
  const bool is_tall = x.size(0) > x.size(1);
  at::Tensor wide = is_tall ? x.t() : x;
  const auto m = static_cast<double>(wide.size(0)), n = static_cast<double>(wide.size(1));
  wide = wide / norm(wide);
  error += 2 * u;
  const double of_squares = by_squares ? error_of_squares(at::linalg_svdvals(wide), n) : 0;
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
    const double own = of_square * (n * squared(of_sum * size * size) + squared(u * norm(square))) +
                       squared(mean) * (squared(u * b * norm(square)) + squared(u * c * norm(fourth)) +
                                        m * squared(c * of_sum * norm(square) * norm(square))) +
                       squared(u * a * size) + squared(u * norm(product)) + squared(u * norm(next)) +
                       m * squared(of_sum * norm(factor) * size);
    error = std::sqrt(growth * squared(error) + (by_squares ? 0 : own));
    wide = next;
  }
  return {is_tall ? wide.t() : wide, 4 * std::hypot(error, of_squares)};
}

}  // namespace gpt::test
