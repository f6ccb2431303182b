#include "norm_kernel.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "gpt/simd/row_steps.h"

// With n = (s - mean) r and g = dL/dn, the gradient of the sum is r (g - average(g) - n average(g n)) for a LayerNorm, and the
// same without average(g) for an RMSNorm.

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

inline float total_of(const FloatPair& x) { return sum_of(x.low + x.high); }

// The first `count` values; the others are 0.
inline FloatPair first_of(const FloatPair& x, int64_t count) {
  constexpr int64_t kVector = FloatVector::size();
  const FloatVector zero(0.0f);
  return {FloatVector::set(zero, x.low, std::min(count, kVector)),
          FloatVector::set(zero, x.high, std::max<int64_t>(count - kVector, 0))};
}

// As a T keeps it.
template <class T>
FloatPair rounded_to(const FloatPair& x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    return from_bfloat16(to_bfloat16(x));
  }
}

// Writes a row of x + dropout(branch) and returns the total of what is written.
template <class T, class B>
float add_row(const AddNormRows<T, B>& rows, int64_t row) {
  const T* x = rows.x + row * rows.C;
  const B* branch = rows.branch + row * rows.C;
  T* sum = rows.sum + row * rows.C;
  RowMask mask(rows.dropout, row);
  FloatPair total;
  for_each_step(rows.C, [&](int64_t c, auto count) {
    FloatPair added = load(branch + c, count);
    if (rows.dropout) added = added * mask.at(c);
    const FloatPair s = rounded_to<T>(load(x + c, count) + added);
    total = total + s;
    store(s, sum + c, count);
  });
  return total_of(total);
}

template <class T>
float total_of(const T* row, int64_t C) {
  FloatPair total;
  for_each_step(C, [&](int64_t c, auto count) { total = total + load(row + c, count); });
  return total_of(total);
}

// The variance comes from the deviations, so that a large mean does not cancel it. An RMSNorm deviates from 0.
template <class T>
RowStatistics statistics_of(const T* row, int64_t C, float mean, float eps) {
  FloatPair squares;
  for_each_step(C, [&](int64_t c, auto count) {
    const FloatPair deviation = first_of(load(row + c, count) - FloatVector(mean), count);
    squares = fmadd(deviation, deviation, squares);
  });
  return {mean, 1.0f / std::sqrt(total_of(squares) / static_cast<float>(C) + eps)};
}

template <class T>
FloatPair standardized(const T* from, int64_t count, const RowStatistics& statistics) {
  return (load(from, count) - FloatVector(statistics.mean)) * FloatVector(statistics.reciprocal);
}

template <class T, class B>
void forward(const AddNormRows<T, B>& rows, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* sum = (rows.branch ? rows.sum : rows.x) + row * rows.C;
    const float total = rows.branch ? add_row(rows, row) : rows.is_centered ? total_of(sum, rows.C) : 0.0f;
    const float mean = rows.is_centered ? total / static_cast<float>(rows.C) : 0.0f;
    const RowStatistics statistics = statistics_of(sum, rows.C, mean, rows.eps);
    if (rows.statistics) rows.statistics[row] = statistics;
    T* normed = rows.normed + row * rows.C;
    for_each_step(rows.C, [&](int64_t c, auto count) {
      const FloatPair n = standardized(sum + c, count, statistics), weight = load(rows.weight + c, count);
      store(rows.bias ? fmadd(n, weight, load(rows.bias + c, count)) : n * weight, normed + c, count);
    });
  }
}

// The averages of g and of g n over a row.
struct RowAverages {
  float gradient = 0, projection = 0;
};

// Returns them and adds the row to the gradients of weight and bias.
template <class T, class B>
RowAverages average_row(const AddNormGradients<T, B>& rows, int64_t row, float* weight_gradient, float* bias_gradient) {
  const T *sum = rows.sum + row * rows.C, *upstream = rows.normed_gradient + row * rows.C;
  FloatPair gradients, projections;
  for_each_step(rows.C, [&](int64_t c, auto count) {
    const FloatPair n = standardized(sum + c, count, rows.statistics[row]), of_normed = load(upstream + c, count);
    store(fmadd(of_normed, n, load(weight_gradient + c, count)), weight_gradient + c, count);
    if (bias_gradient) store(of_normed + load(bias_gradient + c, count), bias_gradient + c, count);
    const FloatPair g = of_normed * load(rows.weight + c, count);
    gradients = gradients + g;
    projections = fmadd(g, n, projections);
  });
  const auto columns = static_cast<float>(rows.C);
  return {rows.is_centered ? total_of(gradients) / columns : 0.0f, total_of(projections) / columns};
}

template <class T, class B>
void propagate_row(const AddNormGradients<T, B>& rows, int64_t row, const RowAverages& averages) {
  const int64_t first = row * rows.C;
  const FloatVector reciprocal(rows.statistics[row].reciprocal), average(averages.gradient),
      projection(averages.projection);
  RowMask mask(rows.dropout, row);
  for_each_step(rows.C, [&](int64_t c, auto count) {
    FloatPair gradient;
    if (rows.normed_gradient) {
      const FloatPair n = standardized(rows.sum + first + c, count, rows.statistics[row]);
      const FloatPair g = load(rows.normed_gradient + first + c, count) * load(rows.weight + c, count);
      gradient = (g - average - n * projection) * reciprocal;
    }
    if (rows.sum_gradient) gradient = gradient + load(rows.sum_gradient + first + c, count);
    store(gradient, rows.x_gradient + first + c, count);
    if (!rows.branch_gradient) return;
    store(rows.dropout ? gradient * mask.at(c) : gradient, rows.branch_gradient + first + c, count);
  });
}

template <class T, class B>
void backward(const AddNormGradients<T, B>& rows, int64_t begin, int64_t end, float* weight_gradient,
              float* bias_gradient) {
  for (int64_t row = begin; row < end; ++row) {
    RowAverages averages;
    if (rows.normed_gradient) averages = average_row(rows, row, weight_gradient, bias_gradient);
    propagate_row(rows, row, averages);
  }
}

template <class T, class B>
constexpr NormKernels<T, B> kKernels{forward<T, B>, backward<T, B>};

}  // namespace

extern const NormKernels<float, float> norm_float32;
const NormKernels<float, float> norm_float32 = kKernels<float, float>;
extern const NormKernels<c10::BFloat16, c10::BFloat16> norm_bfloat16;
const NormKernels<c10::BFloat16, c10::BFloat16> norm_bfloat16 = kKernels<c10::BFloat16, c10::BFloat16>;
extern const NormKernels<float, c10::BFloat16> norm_mixed;
const NormKernels<float, c10::BFloat16> norm_mixed = kKernels<float, c10::BFloat16>;

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
