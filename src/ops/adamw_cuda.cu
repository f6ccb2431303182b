#include <c10/cuda/CUDAGuard.h>

#include "adamw_kernel.cuh"
#include "kernels.h"

namespace gpt::ops::cuda {

void adamw(const AdamWBuffers& buffers, const AdamWRates& rates, const AdamWScalars& scalars) {
  const c10::cuda::CUDAGuard guard(buffers.gradients.device());
  cuda::adamw(StreamLaunch(), buffers, rates, scalars);
}

}  // namespace gpt::ops::cuda
