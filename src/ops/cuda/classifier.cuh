// The kernel of the cross entropy, compiled by nvcc and, under tests/support/cuda_emulation.h, by the host compiler, and how it is
// launched.
//
// With the largest logit m of a row and s = sum_v e^(z_v - m), the loss against token t is m + log s - z_t, and its gradient is
// e^(z_v - m) / s, less 1 at t. Label smoothing a replaces z_t by (1 - a) z_t + a mean_v z_v.
#pragma once

#include <c10/macros/Macros.h>

#include <algorithm>
#include <cfloat>
#include <type_traits>

#include "launch.cuh"

namespace gpt::ops::cuda {

// The largest value so far, and the sum of the powers relative to it.
struct PowerSum {
  float maximum = -FLT_MAX, sum = 0;

  // Without a branch, which some thread of every warp would take. NaN loses every comparison, but it is part of the sum.
  template <class T>
  __device__ void add(const Group& group) {
    float largest = maximum;
    for (const float value : group.values) largest = fmaxf(largest, value);
    sum *= power<T>(maximum - largest);
    for (const float value : group.values) sum += power<T>(value - largest);
    maximum = largest;
  }
};

inline constexpr unsigned kMostLogitThreads = 1024;

// A row whose groups are read where they lie.
template <bool is_whole, class T>
class RowInPlace {
 public:
  __device__ RowInPlace(const T* row, int64_t /*columns*/) : row_(row) {}
  __device__ Group group(int64_t begin, int64_t count) const { return load<is_whole>(row_ + begin, count); }

 private:
  const T* row_;
};

// A row of whole groups in the dynamic shared memory of a block, so that each is read from global memory once. A thread takes the
// groups that it has put there itself, and so need not wait for others. Packs with the same number in their groups lie side by side, so
// that the threads of a warp access neighbouring words.
template <class T>
class KeptRow {
 public:
  __device__ KeptRow(const T* row, int64_t columns)
      : packs_(static_cast<Words*>(dynamic_shared_memory())), groups_(static_cast<int>(columns) / kGroup) {
    const auto* const from = reinterpret_cast<const Words*>(row);
    for (int group = static_cast<int>(threadIdx.x); group < groups_; group += static_cast<int>(blockDim.x)) {
      for (int pack = 0; pack < kPacks; ++pack) {
        __pipeline_memcpy_async(packs_ + pack * groups_ + group, from + group * kPacks + pack, sizeof(Words));
      }
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
  }

  __device__ Group group(int64_t begin, int64_t /*count*/) const {
    const int number = static_cast<int>(begin) / kGroup;
    StoredGroup<T> stored;
    for (int pack = 0; pack < kPacks; ++pack) stored.packs[pack] = packs_[pack * groups_ + number];
    return stored.values();
  }

 private:
  static constexpr int kPacks = StoredGroup<T>::kPacks;
  Words* packs_;
  int groups_;
};

// What a block makes of a masked row.
template <bool is_whole, class T>
__device__ void clear_row(const CrossEntropyRows<T>& of, int64_t row) {
  if (threadIdx.x == 0) of.losses[row] = 0;
  if (!of.scale) return;
  for (int64_t begin = int64_t{threadIdx.x} * kGroup; begin < of.stride; begin += int64_t{blockDim.x} * kGroup)
    store<is_whole>(Group{}, of.logits + row * of.stride + begin, of.stride - begin);
}

// One block computes a row, which it needs twice: a row that is not kept comes the second time from the second-level cache, where that
// holds the rows in flight. A kept row is whole.
template <bool is_whole, bool keeps, class T>
__global__ void __launch_bounds__(kMostLogitThreads, keeps ? 2 : 1) cross_entropy_kernel(CrossEntropyRows<T> of) {
  const int64_t row = blockIdx.x, V = of.vocabulary;
  CUDA_KERNEL_ASSERT(of.targets[row] >= kMaskedTarget && of.targets[row] < V);
  const auto target = static_cast<int32_t>(of.targets[row]);  // in one register, of which there are few
  // A masked row goes the way of all others: leaving it early would cost registers that a kept row lacks.
  const bool is_masked = target == kMaskedTarget;
  T* const logits = of.logits + row * of.stride;
  const std::conditional_t<keeps, KeptRow<T>, RowInPlace<is_whole, T>> of_row(logits, of.stride);
  const auto target_logit = static_cast<float>(logits[is_masked ? 0 : target]);
  PowerSum own;
  float total = 0;
  for (int64_t begin = int64_t{threadIdx.x} * kGroup; begin < V; begin += int64_t{blockDim.x} * kGroup) {
    const int64_t count = V - begin;
    Group z = of_row.group(begin, count);
    if (of.smoothing > 0) {
      for (int i = 0; i < kGroup; ++i) total += i < count ? z.values[i] : 0.0f;
    }
    if (count < kGroup) {  // the last group, of which the others are no logits
      for (int i = 0; i < kGroup; ++i) z.values[i] = i < count ? z.values[i] : -INFINITY;
    }
    own.add<T>(z);
  }
  const float maximum = block_maximum(own.maximum);
  const Sums sums = block_sums({own.sum * expf(own.maximum - maximum), total});
  const float log_sum = logf(sums.first), uniform = of.smoothing / static_cast<float>(V);
  if (threadIdx.x == 0) {
    float loss = log_sum - (1 - of.smoothing) * (target_logit - maximum);
    if (of.smoothing > 0) loss -= of.smoothing * (sums.second / static_cast<float>(V) - maximum);
    of.losses[row] = is_masked ? 0 : loss;
  }
  if (!of.scale) return;
  const float scale = *of.scale;
  for (int64_t begin = int64_t{threadIdx.x} * kGroup; begin < of.stride; begin += int64_t{blockDim.x} * kGroup) {
    Group z = of_row.group(begin, of.stride - begin);
    for (float& value : z.values) value = is_masked ? 0 : (power<T>(value - maximum - log_sum) - uniform) * scale;
    if (target >= begin && target - begin < kGroup) {
      for (int i = 0; i < kGroup; ++i) z.values[i] -= begin + i == target ? (1 - of.smoothing) * scale : 0.0f;
    }
    if (V - begin < kGroup) {
      for (int i = 0; i < kGroup; ++i) z.values[i] = begin + i < V ? z.values[i] : 0.0f;
    }
    store<is_whole, keeps>(z, logits + begin, of.stride - begin);
  }
}

// As cpu::cross_entropy().
template <class Launch>
void cross_entropy(const Launch& launch, const ClassifierOptions& options, const at::Tensor& logits,
                   const at::Tensor& targets, const at::Tensor& losses, const at::Tensor& scale) {
  with_type(logits.scalar_type(), [&]<class T>() {
    const auto of = cross_entropy_rows<T>(options, logits, targets, losses, scale);
    const auto threads =
        static_cast<unsigned>(std::min<int64_t>(kMostLogitThreads, (groups_of(of.stride) + 31) / 32 * 32));
    const bool whole = of.stride % kGroup == 0 && are_aligned(of.logits);
    const int64_t bytes = of.stride * static_cast<int64_t>(sizeof(T));
    if (whole && may_keep(bytes, threads, launch.block_limits())) {
      launch.with_shared_memory(bytes, cross_entropy_kernel<true, true, T>, logits.size(0), threads, of);
    } else {
      launch(whole ? cross_entropy_kernel<true, false, T> : cross_entropy_kernel<false, false, T>, logits.size(0),
             threads, of);
    }
  });
}

}  // namespace gpt::ops::cuda
