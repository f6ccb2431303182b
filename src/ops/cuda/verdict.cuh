// The kernel of a verdict, compiled by nvcc and, under tests/support/cuda_emulation.h, by the host compiler, and how it is launched.
#pragma once

#include "launch.cuh"
#include "ops/verdict_kernel.h"

namespace gpt::ops::cuda {

inline constexpr unsigned kVerdictThreads = 32;  // one of them is needed; a warp is the least
inline constexpr unsigned kWatchThreads = 256;   // for the medians of a window

// The median of the distances of the values from `origin`; all threads get it. Each looks for the places of its values in their order.
__device__ inline float median_distance(const float* values, int64_t count, float origin) {
  __shared__ float middle[2];
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    const float own = fabsf(values[i] - origin);
    int64_t place = 0;
    for (int64_t other = 0; other < count; ++other) {
      const float distance = fabsf(values[other] - origin);
      place += distance < own || (distance == own && other < i) ? 1 : 0;
    }
    if (place == (count - 1) / 2) middle[0] = own;
    if (place == count / 2) middle[1] = own;
  }
  __syncthreads();
  const float median = middle_of(middle[0], middle[1]);
  __syncthreads();  // before the next call writes there
  return median;
}

// Losses and norms are not negative, so that their distances from 0 are they themselves.
__device__ inline Level level_of_block(const float* values, int64_t count) {
  const float median = median_distance(values, count, 0);
  return {median, median_distance(values, count, median)};
}

__global__ inline void __launch_bounds__(kWatchThreads) judge_kernel(VerdictScalars of) {
  const bool is_compared = has_levels(of);
  __syncthreads();           // before the first thread counts this update
  __shared__ Levels levels;  // in registers they would spill
  if (is_compared) {
    const Level loss = level_of_block(of.window, of.window_size),
                norm = level_of_block(of.window + of.window_size, of.window_size);
    if (threadIdx.x == 0) levels = {loss, norm};
  }
  if (threadIdx.x == 0) ops::judge(of, is_compared, levels);
}

// As cpu::judge().
template <class Launch>
void judge(const Launch& launch, const Evidence& evidence, double max_norm, const Verdict& verdict,
           const UpdateCounts& counts, const SpikeWatch& watch) {
  launch(judge_kernel, 1, watch.window.defined() ? kWatchThreads : kVerdictThreads,
         scalars_of(evidence, max_norm, verdict, counts, watch));
}

}  // namespace gpt::ops::cuda
