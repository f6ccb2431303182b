// The kernels of the residual sum and normalization, compiled by nvcc and, under tests/support/cuda_emulation.h, by the host
// compiler, and how they are launched.
#pragma once

#include <ATen/ops/empty.h>

#include <algorithm>

#include "launch.cuh"
#include "ops/kernels.h"
#include "row_sums.cuh"

namespace gpt::ops::cuda {

template <class T, class B>
using AddNormRows = ops::AddNormRows<T, B, DropoutMask>;
template <class T, class B>
using AddNormGradients = ops::AddNormGradients<T, B, DropoutMask>;

// A row is held in the registers of a block, in one or two groups of each thread.
inline constexpr int64_t kMostThreads = kMostNormColumnsOfCuda / (2 * kGroup);

// A thread's groups of a row lie blockDim.x groups apart. `begin` is the first column; what follows the row's end is 0.
template <int kGroups, class Work>
__device__ void for_each_group(int64_t C, const Work& work) {
#ifdef __CUDACC__
#pragma unroll  // so that arrays of groups stay in registers
#endif
  for (int i = 0; i < kGroups; ++i) {
    const int64_t begin = (threadIdx.x + int64_t{i} * blockDim.x) * kGroup;
    if (begin < C) work(i, begin, C - begin);
  }
}

template <int kGroups, bool is_whole, class T, class B>
__global__ void __launch_bounds__(kMostThreads) add_norm_kernel(AddNormRows<T, B> of) {
  const int64_t row = blockIdx.x, C = of.C;
  Group values[kGroups];
  float total = 0;
  for_each_group<kGroups>(C, [&](int i, int64_t begin, int64_t count) {
    const int64_t at = row * C + begin;
    values[i] = load<is_whole>(of.x + at, count);
    if (of.branch) {
      Group added = load<is_whole>(of.branch + at, count);
      if (of.dropout.place) {
        const Group factors = dropout_factors(of.dropout, row, begin / kGroup);
        for (int k = 0; k < kGroup; ++k) added.values[k] *= factors.values[k];
      }
      // The norm is that of the sum as it is stored.
      for (int k = 0; k < kGroup; ++k) {
        values[i].values[k] = static_cast<float>(static_cast<T>(values[i].values[k] + added.values[k]));
      }
      store<is_whole>(values[i], of.sum + at, count);
    }
    for (int k = 0; k < kGroup; ++k) total += values[i].values[k];
  });
  const float mean = of.is_centered ? block_sums({total, 0}).first / static_cast<float>(C) : 0.0f;
  float squares = 0;
  for_each_group<kGroups>(C, [&](int i, int64_t, int64_t count) {
    for (int k = 0; k < kGroup; ++k) {
      const float deviation = values[i].values[k] - mean;
      squares += k < count ? deviation * deviation : 0.0f;
    }
  });
  const float reciprocal = 1 / sqrtf(block_sums({squares, 0}).first / static_cast<float>(C) + of.eps);
  if (of.statistics && threadIdx.x == 0) of.statistics[row] = {mean, reciprocal};
  for_each_group<kGroups>(C, [&](int i, int64_t begin, int64_t count) {
    const Group weight = load<is_whole>(of.weight + begin, count);
    Group normed;
    for (int k = 0; k < kGroup; ++k) normed.values[k] = (values[i].values[k] - mean) * reciprocal * weight.values[k];
    if (of.bias) {
      const Group bias = load<is_whole>(of.bias + begin, count);
      for (int k = 0; k < kGroup; ++k) normed.values[k] += bias.values[k];
    }
    store<is_whole>(normed, of.normed + row * C + begin, count);
  });
}

// What the backward pass reads of a row. Where a thread has one group of it, all of the next row is fetched ahead; two rows of two
// groups do not fit into the registers.
template <int kGroups>
inline constexpr bool is_fetched_ahead = kGroups == 1;

template <int kGroups, class T>
struct GradientRow {
  RowStatistics statistics;
  StoredGroup<T> sum_gradient[kGroups], sum[kGroups], normed_gradient[kGroups];
};

template <bool is_whole, int kGroups, class T, class B>
__device__ void fetch_row(const AddNormGradients<T, B>& of, int64_t row, GradientRow<kGroups, T>& fetched) {
  if (of.normed_gradient) fetched.statistics = of.statistics[row];
  for_each_group<kGroups>(of.C, [&](int i, int64_t begin, int64_t count) {
    const int64_t at = row * of.C + begin;
    if (of.sum_gradient) fetched.sum_gradient[i] = fetch<is_whole>(of.sum_gradient + at, count);
    if (!is_fetched_ahead<kGroups> || !of.normed_gradient) return;
    fetched.sum[i] = fetch<is_whole>(of.sum + at, count);
    fetched.normed_gradient[i] = fetch<is_whole>(of.normed_gradient + at, count);
  });
}

// Sets g to the gradient that a row of the sum gets from that of `normed`, and adds the row to the gradients of weight and bias. With n
// the normalized row, g at first the gradient of normed times weight and m the number of columns, it is
// (g - n sum(g n) / m [- sum(g) / m, if centered]) * reciprocal.
template <bool is_whole, int kGroups, class T, class B>
__device__ void differentiate_norm(const AddNormGradients<T, B>& of, int64_t row,
                                   const GradientRow<kGroups, T>& fetched, Group (&g)[kGroups],
                                   Group (&of_weight)[kGroups], Group (&of_bias)[kGroups]) {
  const int64_t C = of.C;
  const RowStatistics statistics = fetched.statistics;
  Group n[kGroups];
  Sums sums{0, 0};
  for_each_group<kGroups>(C, [&](int i, int64_t begin, int64_t count) {
    const int64_t at = row * C + begin;
    n[i] = is_fetched_ahead<kGroups> ? fetched.sum[i].values() : load<is_whole>(of.sum + at, count);
    g[i] = is_fetched_ahead<kGroups> ? fetched.normed_gradient[i].values()
                                     : load<is_whole>(of.normed_gradient + at, count);
    const Group weight = load<is_whole>(of.weight + begin, count);
    for (int k = 0; k < kGroup; ++k) {
      float &normalized = n[i].values[k], &gradient = g[i].values[k];
      normalized = k < count ? (normalized - statistics.mean) * statistics.reciprocal : 0.0f;
      of_weight[i].values[k] += gradient * normalized;
      of_bias[i].values[k] += gradient;
      gradient *= weight.values[k];
      sums.first += gradient * normalized;
      sums.second += gradient;
    }
  });
  sums = block_sums(sums);
  const float along = sums.first / static_cast<float>(C),
              mean = of.is_centered ? sums.second / static_cast<float>(C) : 0.0f;
  for_each_group<kGroups>(C, [&](int i, int64_t, int64_t) {
    for (int k = 0; k < kGroup; ++k)
      g[i].values[k] = (g[i].values[k] - mean - n[i].values[k] * along) * statistics.reciprocal;
  });
}

// A block goes through rows gridDim.x apart, so that the sums over its rows stay in registers until they go to `parts`
// (blocks, 2 or 3, C): what they add to the gradients of weight and bias, and, if is_summed, the sum of the branch's gradient.
template <int kGroups, bool is_whole, bool is_summed, class T, class B>
__global__ void __launch_bounds__(kMostThreads)
    add_norm_backward_kernel(AddNormGradients<T, B> of, int64_t rows, float* parts) {
  const int64_t C = of.C;
  Group of_weight[kGroups] = {}, of_bias[kGroups] = {}, of_branch[kGroups] = {};
  GradientRow<kGroups, T> fetched, next;
  if (is_fetched_ahead<kGroups>) fetch_row<is_whole>(of, blockIdx.x, next);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    if constexpr (is_fetched_ahead<kGroups>) {
      // It is on its way while the barriers of this row's sums hold up the warps.
      fetched = next;
      if (row + gridDim.x < rows) fetch_row<is_whole>(of, row + gridDim.x, next);
    } else {
      fetch_row<is_whole>(of, row, fetched);
    }
    Group g[kGroups];
    if (of.normed_gradient) differentiate_norm<is_whole>(of, row, fetched, g, of_weight, of_bias);
    for_each_group<kGroups>(C, [&](int i, int64_t begin, int64_t count) {
      const int64_t at = row * C + begin;
      Group gradient = of.normed_gradient ? g[i] : Group{};
      if (of.sum_gradient) add(gradient, fetched.sum_gradient[i].values());
      store<is_whole>(gradient, of.x_gradient + at, count);
      if (of.dropout.place) {
        const Group factors = dropout_factors(of.dropout, row, begin / kGroup);
        for (int k = 0; k < kGroup; ++k) gradient.values[k] *= factors.values[k];
      }
      if (of.branch_gradient) store<is_whole>(gradient, of.branch_gradient + at, count);
      if constexpr (is_summed) add(of_branch[i], gradient);
    });
  }
  float* const part = parts + int64_t{blockIdx.x} * (is_summed ? 3 : 2) * C;
  for_each_group<kGroups>(C, [&](int i, int64_t begin, int64_t count) {
    if (of.normed_gradient) {
      store<is_whole>(of_weight[i], part + begin, count);
      store<is_whole>(of_bias[i], part + C + begin, count);
    }
    if constexpr (is_summed) store<is_whole>(of_branch[i], part + 2 * C + begin, count);
  });
}

inline unsigned row_threads(int64_t C) {
  const int64_t groups = groups_of(C), threads = groups <= kMostThreads ? groups : (groups + 1) / 2;
  return static_cast<unsigned>((threads + 31) / 32 * 32);
}

// Calls kernel.operator()<kGroups, is_whole>() for rows of C columns.
template <class Kernel>
void for_row(int64_t C, bool is_whole, const Kernel& kernel) {
  if (groups_of(C) <= kMostThreads) {
    is_whole ? kernel.template operator()<1, true>() : kernel.template operator()<1, false>();
  } else {
    is_whole ? kernel.template operator()<2, true>() : kernel.template operator()<2, false>();
  }
}

// As cpu::add_norm(), for at most kMostNormColumnsOfCuda.
template <class Launch>
void add_norm(const Launch& launch, const Normalization& norm, const Dropout& dropout, const at::Tensor& x,
              const at::Tensor& branch, const at::Tensor& sum, const at::Tensor& normed, const at::Tensor& statistics) {
  const int64_t C = norm.weight.value().numel();
  TORCH_CHECK(C <= kMostNormColumnsOfCuda, "norm: a row of ", C, " columns does not fit into the registers of a block");
  with_types(x.scalar_type(), (branch.defined() ? branch : x).scalar_type(), [&]<class T, class B>() {
    const auto of = add_norm_rows<T, B>(norm, mask_of(dropout), x, branch, sum, normed, statistics);
    const bool whole = C % kGroup == 0 && are_aligned(of.x, of.branch, of.weight, of.bias, of.sum, of.normed);
    for_row(C, whole, [&]<int kGroups, bool is_whole>() {
      launch(add_norm_kernel<kGroups, is_whole, T, B>, x.numel() / C, row_threads(C), of);
    });
  });
}

// As cpu::add_norm_backward(), with the branch's sums for aligned rows that each thread has one group of: there are not enough
// registers for more.
template <class Launch>
at::Tensor add_norm_backward(const Launch& launch, const Normalization& norm, const Dropout& dropout,
                             const at::Tensor& sum, const at::Tensor& statistics, const at::Tensor& sum_gradient,
                             const at::Tensor& normed_gradient, const at::Tensor& x_gradient,
                             const at::Tensor& branch_gradient, bool sums_branch) {
  const int64_t C = norm.weight.value().numel(), rows = sum.numel() / C;
  at::Tensor parts;
  with_types(sum.scalar_type(), (branch_gradient.defined() ? branch_gradient : sum).scalar_type(),
             [&]<class T, class B>() {
               const auto of = add_norm_gradients<T, B>(norm, mask_of(dropout), sum, statistics, sum_gradient,
                                                        normed_gradient, x_gradient, branch_gradient);
               const bool whole = C % kGroup == 0 && are_aligned(of.sum, of.weight, of.sum_gradient, of.normed_gradient,
                                                                 of.x_gradient, of.branch_gradient);
               const auto with = [&]<int kGroups, bool is_whole, bool is_summed>() {
                 const auto kernel = add_norm_backward_kernel<kGroups, is_whole, is_summed, T, B>;
                 // One more block than run at once would run after all others, for as long as they.
                 const int64_t blocks = std::min<int64_t>(rows, launch.blocks_at_once(kernel, row_threads(C)));
                 parts = at::empty({blocks, is_summed ? 3 : 2, C}, statistics.options());
                 launch(kernel, blocks, row_threads(C), of, rows, write<float>(parts));
               };
               if (sums_branch && whole && groups_of(C) <= kMostThreads)
                 return with.template operator()<1, true, true>();
               for_row(C, whole,
                       [&]<int kGroups, bool is_whole>() { with.template operator()<kGroups, is_whole, false>(); });
             });
  return parts;
}

}  // namespace gpt::ops::cuda
