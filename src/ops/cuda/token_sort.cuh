// Sorts the tokens of a small vocabulary in one launch, where LibTorch's sort takes many: one block counts how often each id occurs in the
// rows of each of its warps, from which follows where the next one goes. Compiled by nvcc and, under tests/support/cuda_emulation.h, by
// the host compiler.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/sort.h>
#include <c10/macros/Macros.h>

#include <algorithm>
#include <utility>

#include "launch.cuh"

namespace gpt::ops::cuda {

struct UnsortedTokens {
  const int64_t* ids;
  int rows, vocabulary;
  int* sorted;     // the ids in order
  int64_t* order;  // where each of them was
};

inline constexpr unsigned kMostSortThreads = 1024;

// The sum over the threads of the block before this one.
__device__ inline int sum_before(int own) {
  __shared__ int sums[kMostSortThreads];
  sums[threadIdx.x] = own;
  for (unsigned step = 1; step < blockDim.x; step *= 2) {
    __syncthreads();
    const int before = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
    __syncthreads();
    sums[threadIdx.x] += before;
  }
  return sums[threadIdx.x] - own;
}

// Calls work(row, id, count) for the rows of a warp with how often the id occurred in those before, to which it adds in `counts`
// (vocabulary, warps).
template <class Work>
__device__ void count_tokens(const UnsortedTokens& of, int* counts, const Work& work) {
  const int warps = static_cast<int>(blockDim.x / 32), warp = static_cast<int>(threadIdx.x / 32),
            lane = static_cast<int>(threadIdx.x % 32), rows = (of.rows + 32 * warps - 1) / (32 * warps) * 32,
            end = (warp + 1) * rows < of.rows ? (warp + 1) * rows : of.rows;
  const auto id_of = [&](int row) { return row < end ? static_cast<int>(of.ids[row]) : -1; };
  int next = id_of(warp * rows + lane);
  for (int begin = warp * rows; begin < end; begin += 32) {
    const int row = begin + lane, id = next;
    next = id_of(row + 32);
    CUDA_KERNEL_ASSERT(row >= end || (id >= 0 && id < of.vocabulary));
    const unsigned lanes = __match_any_sync(0xffffffff, id), before = lanes & ((1u << lane) - 1);
    int* const count = counts + id * warps + warp;
    if (id >= 0) work(row, id, *count + __popc(before));
    __syncwarp();
    if (id >= 0 && before == 0) *count += __popc(lanes);
    __syncwarp();
  }
}

__global__ inline void __launch_bounds__(kMostSortThreads) sort_tokens_kernel(UnsortedTokens of) {
  auto* const counts = static_cast<int*>(dynamic_shared_memory());
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x),
            size = of.vocabulary * (threads / 32), share = (size + threads - 1) / threads;
  for (int i = thread; i < size; i += threads) counts[i] = 0;
  __syncthreads();
  count_tokens(of, counts, [](int, int, int) {});
  __syncthreads();
  int sum = 0;
  for (int i = thread * share; i < (thread + 1) * share && i < size; ++i) sum += counts[i];
  int place = sum_before(sum);
  for (int i = thread * share; i < (thread + 1) * share && i < size; ++i) {
    const int count = counts[i];
    counts[i] = place;
    place += count;
  }
  __syncthreads();
  count_tokens(of, counts, [&](int row, int id, int at) {
    of.sorted[at] = id;
    of.order[at] = row;
  });
}

// With how many warps one block sorts so many tokens; 0: their number or their vocabulary is too large, so that it would take longer than
// many blocks with more launches.
inline int64_t sorting_warps(int64_t rows, int64_t vocabulary) {
  constexpr int64_t kMostRowsOfWarp = 2048, kMostVocabulary = 1024;
  if (vocabulary > kMostVocabulary) return 0;
  const int64_t counts = kForAnyKernel / static_cast<int64_t>(sizeof(int)),
                warps = std::min<int64_t>({kMostSortThreads / 32, counts / vocabulary, (rows + 31) / 32});
  return rows <= kMostRowsOfWarp * warps ? warps : 0;
}

// As at::sort(), stably: the ids in order as int32, and where each of them was.
template <class Launch>
std::pair<at::Tensor, at::Tensor> sort_tokens(const Launch& launch, const at::Tensor& ids, int64_t vocabulary) {
  const int64_t rows = ids.numel(), warps = sorting_warps(rows, vocabulary);
  if (warps == 0) {  // of 32 bits, which halve the passes of the sort
    const auto [sorted, order] = at::sort(ids.flatten().to(at::kInt), /*stable=*/true, /*dim=*/0, /*descending=*/false);
    return {sorted, order};
  }
  const at::Tensor sorted = at::empty({rows}, ids.options().dtype(at::kInt)), order = at::empty({rows}, ids.options());
  const UnsortedTokens of{read<int64_t>(ids), static_cast<int>(rows), static_cast<int>(vocabulary), write<int>(sorted),
                          write<int64_t>(order)};
  launch.with_shared_memory(vocabulary * warps * static_cast<int64_t>(sizeof(int)), sort_tokens_kernel, 1,
                            static_cast<unsigned>(32 * warps), of);
  return {sorted, order};
}

}  // namespace gpt::ops::cuda
