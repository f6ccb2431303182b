// Sums over the rows of a matrix, in two steps: blocks sum some of the rows each, in registers, which gives parts, and a second kernel
// adds the parts up in a fixed order. So nothing is atomic, and the bits are the same every time.
#pragma once

#include <ATen/ops/empty.h>

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

// A thread sums one group of columns over every `parts`-th row of x (rows, C), into `sums` (parts, C).
inline constexpr unsigned kSumThreads = 256;

template <bool is_whole, class T>
__global__ void __launch_bounds__(kSumThreads)
    sum_rows_kernel(const T* x, float* sums, int64_t rows, int64_t C, unsigned blocks_of_row, unsigned parts) {
  const unsigned part = blockIdx.x / blocks_of_row;
  const int64_t begin = (int64_t{blockIdx.x - part * blocks_of_row} * blockDim.x + threadIdx.x) * kGroup;
  if (begin >= C) return;
  Group sum{};
  for (int64_t row = part; row < rows; row += parts) add(sum, load<is_whole>(x + row * C + begin, C - begin));
  store<is_whole>(sum, sums + part * C + begin, C - begin);
}

// As cpu::sum_rows().
template <class Launch>
at::Tensor sum_rows(const Launch& launch, const at::Tensor& strided) {
  const at::Tensor x = strided.contiguous();
  const int64_t rows = x.size(0), C = x.size(1), groups = groups_of(C), blocks = column_blocks(C, kSumThreads),
                warps = (groups + 32 * blocks - 1) / (32 * blocks),
                parts = row_parts(rows, blocks, launch.multiprocessors());
  at::Tensor sums = at::empty({parts, C}, x.options().dtype(at::kFloat));
  with_type(x.scalar_type(), [&]<class T>() {
    const T* const values = read<T>(x);
    const bool whole = C % kGroup == 0 && are_aligned(values);
    launch(whole ? sum_rows_kernel<true, T> : sum_rows_kernel<false, T>, parts * blocks,
           static_cast<unsigned>(32 * warps), values, write<float>(sums), rows, C, static_cast<unsigned>(blocks),
           static_cast<unsigned>(parts));
  });
  return sums;
}

// Gradients of C values each, to which the sums over the parts are added or, where `is_added` is false, written.
inline constexpr size_t kMostSummed = 2;
template <class T>
struct SummedGradients {
  struct {
    T* data;
    bool is_added;
  } of[kMostSummed];
};

// A block sums one group of a gradient's columns, of which a thread reads every kPartRows-th part: there are few columns, so the time
// is that of one thread's reads, and many threads have few each. The parts (n, gradients or more, C) are `stride` values apart.
inline constexpr unsigned kPartRows = 128;

template <bool is_whole, class T>
__global__ void __launch_bounds__(kPartRows)
    add_parts_kernel(SummedGradients<T> gradients, const float* parts, int64_t n, int64_t stride, int64_t C) {
  __shared__ Group of_threads[kPartRows];
  const auto column_blocks = static_cast<unsigned>((C + kGroup - 1) / kGroup);
  const unsigned gradient = blockIdx.x / column_blocks;
  const int64_t begin = int64_t{blockIdx.x - gradient * column_blocks} * kGroup;
  const float* const from = parts + gradient * C + begin;
  Group own{};
  for (int64_t part = threadIdx.x; part < n; part += kPartRows) {
    add(own, load<is_whole>(from + part * stride, C - begin));
  }
  of_threads[threadIdx.x] = own;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const unsigned column = threadIdx.x % kGroup;
  float sum = 0;
  for (unsigned i = threadIdx.x / kGroup; i < kPartRows; i += 32 / kGroup) sum += of_threads[i].values[column];
  for (unsigned lanes = kGroup; lanes < 32; lanes *= 2) sum += __shfl_xor_sync(0xffffffff, sum, lanes);
  if (threadIdx.x >= kGroup || begin + column >= C) return;
  const auto to = gradient == 0 ? gradients.of[0] : gradients.of[1];  // an index would put both into memory
  T* const place = to.data + begin + column;
  *place = static_cast<T>(sum + (to.is_added ? static_cast<float>(*place) : 0.0f));
}

// As cpu::add_row_sums().
template <class Launch>
void add_row_sums(const Launch& launch, c10::ArrayRef<parameters::Parameter> parameters, const at::Tensor& parts) {
  TORCH_CHECK(parameters.size() <= kMostSummed, "add_row_sums: takes at most ", kMostSummed, " parameters");
  const int64_t C = parts.size(-1), stride = parts.stride(0);
  const auto* const part = read<float>(parts);
  const bool whole = C % kGroup == 0 && stride % kGroup == 0 && are_aligned(part);
  with_type(parameters[0].gradient_type(), [&]<class T>() {
    SummedGradients<T> gradients{};
    for (size_t i = 0; i < parameters.size(); ++i)
      gradients.of[i] = {write<T>(parameters[i].gradient()), parameters[i].begin_contribution()};
    launch(whole ? add_parts_kernel<true, T> : add_parts_kernel<false, T>,
           static_cast<int64_t>(parameters.size()) * groups_of(C), kPartRows, gradients, part, parts.size(0), stride,
           C);
  });
}

}  // namespace gpt::ops::cuda
