// The kernels of the norm of a long vector, compiled by nvcc and, under tests/support/cuda_emulation.h, by the host compiler, and how
// they are launched.
#pragma once

#include <ATen/ops/empty.h>

#include <algorithm>

#include "launch.cuh"

namespace gpt::ops::cuda {

inline constexpr unsigned kNormThreads = 256;

// The sum of one value of each thread, in a fixed order; thread 0 gets it.
__device__ inline double sum_of_block(double own) {
  __shared__ double sums[kNormThreads];
  sums[threadIdx.x] = own;
  for (unsigned half = kNormThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  return sums[0];
}

// A part for each block, of groups that lie all blocks apart.
template <class T>
__global__ void __launch_bounds__(kNormThreads) sum_squares_kernel(const T* values, int64_t groups, double* parts) {
  double sum = 0;
  for (int64_t group = int64_t{blockIdx.x} * kNormThreads + threadIdx.x; group < groups;
       group += int64_t{gridDim.x} * kNormThreads) {
    const Group loaded = load<true>(values + group * kGroup, kGroup);
    float squares = 0;
    for (const float value : loaded.values) squares += value * value;
    sum += squares;
  }
  sum = sum_of_block(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// One block.
__global__ inline void __launch_bounds__(kNormThreads)
    norm_of_parts_kernel(const double* parts, int64_t count, float* norm) {
  double sum = 0;
  for (int64_t part = threadIdx.x; part < count; part += kNormThreads) sum += parts[part];
  sum = sum_of_block(sum);
  if (threadIdx.x == 0) *norm = static_cast<float>(sqrt(sum));
}

// As cpu::flat_norm().
template <class Launch>
at::Tensor flat_norm(const Launch& launch, const at::Tensor& values) {
  constexpr int64_t kBlocksOfMultiprocessor = 8;  // blocks that run at once
  const int64_t groups = values.numel() / kGroup,
                blocks = std::clamp<int64_t>((groups + kNormThreads - 1) / kNormThreads, 1,
                                             kBlocksOfMultiprocessor * launch.multiprocessors());
  const at::Tensor parts = at::empty({blocks}, values.options().dtype(at::kDouble));
  const at::Tensor norm = at::empty({}, values.options().dtype(at::kFloat));
  with_type(values.scalar_type(), [&]<class T>() {
    TORCH_CHECK(are_aligned(read<T>(values)), "flat_norm: the values must begin at a multiple of 16 bytes");
    launch(sum_squares_kernel<T>, blocks, kNormThreads, read<T>(values), groups, write<double>(parts));
  });
  launch(norm_of_parts_kernel, 1, kNormThreads, read<double>(parts), blocks, write<float>(norm));
  return norm;
}

}  // namespace gpt::ops::cuda
