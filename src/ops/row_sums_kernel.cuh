// Sums over the rows of a matrix, in two steps: blocks sum some of the rows each, in registers, which gives parts, and a second kernel
// adds the parts up in a fixed order. So nothing is atomic, and the bits are the same every time.
#pragma once

#include <algorithm>

#include "gpt/parameters/parameters.h"
#include "launch.cuh"

namespace gpt::ops::cuda {

__device__ inline void add(Group& sum, const Group& x) {
  for (int i = 0; i < kGroup; ++i) sum.values[i] += x.values[i];
}

// The sum over the eight warps of a block, one after another; warp 0 gets it.
inline constexpr unsigned kWarps = 8;

__device__ inline Group sum_of_warps(const Group& own) {
  __shared__ Group of_warps[kWarps][32];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  __syncthreads();  // the last call's have been read
  of_warps[warp][lane] = own;
  __syncthreads();
  Group sum{};
  if (warp == 0) {
    for (const auto& of_warp : of_warps) add(sum, of_warp[lane]);
  }
  return sum;
}

// How many blocks share the columns where each takes so many groups of them.
inline int64_t column_blocks(int64_t C, int64_t groups) { return (groups_of(C) + groups - 1) / groups; }

// In how many parts the rows are summed: enough blocks to keep every multiprocessor busy, and enough rows in a part that writing and
// reading it costs little beside them.
inline int64_t row_parts(int64_t rows, int64_t blocks_of_part, int64_t multiprocessors) {
  constexpr int64_t kBlocksOfMultiprocessor = 16, kLeastRows = 32;
  return std::clamp<int64_t>(kBlocksOfMultiprocessor * multiprocessors / blocks_of_part, 1,
                             (rows + kLeastRows - 1) / kLeastRows);
}

// Adds the sum of the parts, `stride` values apart, to the C values of `gradient`, or puts it there. kPartWarps x 32 threads: a block
// sums 32 columns. There are few blocks, so its time is that of one thread's reads.
inline constexpr unsigned kPartWarps = 32;
template <class T>
__global__ void add_parts_kernel(T* gradient, bool is_added, const float* parts, int64_t count, int64_t stride,
                                 int64_t C) {
  __shared__ float sums[kPartWarps][32];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t column = int64_t{blockIdx.x} * 32 + lane;
  float sum = 0;
  for (int64_t part = warp; part < count && column < C; part += kPartWarps) sum += parts[part * stride + column];
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || column >= C) return;
  float total = is_added ? static_cast<float>(gradient[column]) : 0.0f;
  for (const auto& of_warp : sums) total += of_warp[lane];
  gradient[column] = static_cast<T>(total);
}

// As cpu::add_row_sums().
template <class Launch>
void add_row_sums(const Launch& launch, const Parameter& parameter, const at::Tensor& parts) {
  const int64_t C = parts.size(1);
  const bool is_added = parameter.begin_contribution();
  with_type(parameter.gradient_type(), [&]<class T>() {
    launch(add_parts_kernel<T>, (C + 31) / 32, 32 * kPartWarps, write<T>(parameter.gradient()), is_added,
           read<float>(parts), parts.size(0), parts.stride(0), C);
  });
}

}  // namespace gpt::ops::cuda
