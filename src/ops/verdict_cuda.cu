#include <c10/cuda/CUDAGuard.h>

#include "kernels.h"
#include "verdict_kernel.cuh"

namespace gpt::ops::cuda {

void judge(const Evidence& evidence, double max_norm, const Verdict& verdict, const UpdateCounts& counts) {
  const c10::cuda::CUDAGuard guard(evidence.loss.device());
  cuda::judge(StreamLaunch(), evidence, max_norm, verdict, counts);
}

}  // namespace gpt::ops::cuda
