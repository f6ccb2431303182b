// The kernel of a verdict, compiled by nvcc and, under tests/support/cuda_emulation.h, by the host compiler, and how it is launched.
#pragma once

#include "launch.cuh"
#include "ops/verdict_kernel.h"

namespace gpt::ops::cuda {

inline constexpr unsigned kVerdictThreads = 32;  // one of them is needed; a warp is the least

__global__ inline void __launch_bounds__(kVerdictThreads) judge_kernel(VerdictScalars of) {
  if (threadIdx.x == 0) ops::judge(of);
}

// As cpu::judge().
template <class Launch>
void judge(const Launch& launch, const Evidence& evidence, double max_norm, const Verdict& verdict,
           const UpdateCounts& counts) {
  launch(judge_kernel, 1, kVerdictThreads, scalars_of(evidence, max_norm, verdict, counts));
}

}  // namespace gpt::ops::cuda
