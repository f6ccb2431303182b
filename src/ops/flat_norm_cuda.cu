#include <c10/cuda/CUDAGuard.h>

#include "flat_norm_kernel.cuh"
#include "kernels.h"

namespace gpt::ops::cuda {

at::Tensor flat_norm(const at::Tensor& values) {
  const c10::cuda::CUDAGuard guard(values.device());
  return cuda::flat_norm(StreamLaunch(), values);
}

}  // namespace gpt::ops::cuda
