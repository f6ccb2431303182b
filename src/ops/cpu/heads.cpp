#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "gpt/parameters/pointers.h"
#include "norm_kernels.h"
#include "ops/head_pass.h"
#include "ops/kernels.h"
#include "row_grain.h"

namespace gpt::ops::cpu {
namespace {

// A head of twice `half` values; y may be x.
template <class T>
void rotate(const T* x, const float* cos, const float* sin, int64_t half, int direction, T* y) {
  for (int64_t i = 0; i < half; ++i) {
    const float first = x[i], second = x[half + i], turn = static_cast<float>(direction) * sin[i];
    y[i] = first * cos[i] - second * turn;
    y[half + i] = second * cos[i] + first * turn;
  }
}

template <class T>
const NormKernels<T, T>& norm_kernels() {
  if constexpr (std::is_same_v<T, float>) {
    return best_norm_float32();
  } else {
    return best_norm_bfloat16();
  }
}

// The norm of the heads of a token that lie side by side, which are rows of D values.
template <class T>
AddNormRows<T, T> norm_of(const float* weight, double eps, int64_t D, const T* x, T* normed) {
  return {.is_centered = false,
          .eps = static_cast<float>(eps),
          .dropout = {},
          .C = D,
          .x = x,
          .branch = nullptr,
          .weight = weight,
          .bias = nullptr,
          .sum = nullptr,
          .normed = normed,
          .statistics = nullptr};
}

template <class T>
void join(const HeadPass& pass, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
          const at::Tensor& packed) {
  const int64_t positions = packed.size(1), D = packed.size(3), width = packed.size(2) * D, stride = packed.stride(1);
  const RotaryTables& rotary = pass.rotary;
  T* const to = packed.mutable_data_ptr<T>();
  const bool rotates = rotary.cos.defined(), normalizes = pass.direction > 0 && pass.norms.defined();
  // `norm`: null, or the weight of what is done first.
  const auto write = [&](const at::Tensor& from, const float* norm, bool is_rotated, int64_t token, int64_t first) {
    const int64_t batch = token / positions, position = token % positions;
    const T* x = from.const_data_ptr<T>() + batch * from.stride(0) + position * from.stride(1);
    for (int64_t head = 0; head < from.size(2); ++head, x += from.stride(2)) {
      T* const y = to + token * stride + (first + head) * D;
      if (norm) norm_kernels<T>().forward(norm_of(norm, pass.norms.eps, D, x, y), 0, 1);
      if (is_rotated) {
        const int64_t at = position * D / 2;
        rotate(norm ? y : x, rotary.cos.const_data_ptr<float>() + at, rotary.sin.const_data_ptr<float>() + at, D / 2,
               pass.direction, y);
      } else if (!norm && x != y) {
        std::copy_n(x, D, y);
      }
    }
  };
  const float *of_queries = normalizes ? read(pass.norms.query) : nullptr,
              *of_keys = normalizes ? read(pass.norms.key) : nullptr;
  at::parallel_for(0, packed.size(0) * positions, row_grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      write(q, of_queries, rotates, token, 0);
      write(k, of_keys, rotates, token, q.size(2));
      if (v.defined()) write(v, nullptr, false, token, q.size(2) + k.size(2));
    }
  });
}

// The backward pass of the norm of `heads` heads in `raw`, whose gradients lie in `gradient` and are replaced; adds to that of the weight.
// `normed`, `statistics`: room for so many.
template <class T>
void differentiate_norm(const float* weight, double eps, int64_t D, int64_t heads, const T* raw, T* gradient, T* normed,
                        RowStatistics* statistics, float* weight_gradient) {
  AddNormRows<T, T> rows = norm_of(weight, eps, D, raw, normed);
  rows.statistics = statistics;
  norm_kernels<T>().forward(rows, 0, heads);
  const AddNormGradients<T, T> gradients{.is_centered = false,
                                         .dropout = {},
                                         .C = D,
                                         .sum = raw,
                                         .statistics = statistics,
                                         .weight = weight,
                                         .sum_gradient = nullptr,
                                         .normed_gradient = gradient,
                                         .x_gradient = gradient,
                                         .branch_gradient = nullptr};
  norm_kernels<T>().backward(gradients, 0, heads, weight_gradient, /*bias_gradient=*/nullptr);
}

// What the weights get is summed up in parts, which the shape alone determines: the sums are then the same for every number of threads.
template <class T>
at::Tensor differentiate_norms(const HeadPass& pass, int64_t queries, int64_t keys, const at::Tensor& packed) {
  constexpr int64_t kMostParts = 64, kLeastTokens = 16;
  const int64_t tokens = packed.size(0) * packed.size(1), D = packed.size(3), stride = packed.stride(1),
                of_raw = pass.raw.stride(1), parts = std::clamp<int64_t>(tokens / kLeastTokens, 1, kMostParts),
                most = (tokens + parts - 1) / parts;
  const at::Tensor sums = at::zeros({parts, 2, D}, at::kFloat);
  auto* const of_all = sums.mutable_data_ptr<float>();
  const T* const raw = pass.raw.const_data_ptr<T>();
  T* const gradient = packed.mutable_data_ptr<T>();
  at::parallel_for(0, parts, row_grain(most * stride), [&](int64_t begin, int64_t end) {
    std::vector<T> normed(static_cast<size_t>(std::max(queries, keys) * D));
    std::vector<RowStatistics> statistics(static_cast<size_t>(std::max(queries, keys)));
    for (int64_t part = begin; part < end; ++part) {
      float* const own = of_all + part * 2 * D;
      for (int64_t token = part * most; token < std::min((part + 1) * most, tokens); ++token) {
        const auto differentiate = [&](const parameters::Parameter& weight, int64_t first, int64_t heads, float* sum) {
          differentiate_norm(read(weight), pass.norms.eps, D, heads, raw + token * of_raw + first * D,
                             gradient + token * stride + first * D, normed.data(), statistics.data(), sum);
        };
        differentiate(pass.norms.query, 0, queries, own);
        differentiate(pass.norms.key, queries, keys, own + D);
      }
    }
  });
  return sums;
}

}  // namespace

HeadSums join_heads(const HeadPass& pass, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const at::Tensor& packed) {
  const bool is_float = packed.scalar_type() == at::kFloat;
  (is_float ? join<float> : join<c10::BFloat16>)(pass, q, k, v, packed);
  if (pass.direction > 0 || !pass.norms.defined()) return {};
  const auto differentiate = is_float ? differentiate_norms<float> : differentiate_norms<c10::BFloat16>;
  return {.of_rows = {}, .of_norms = differentiate(pass, q.size(2), k.size(2), packed)};
}

}  // namespace gpt::ops::cpu
