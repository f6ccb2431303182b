#include <c10/cuda/CUDAGuard.h>

#include "heads_kernel.cuh"
#include "kernels.h"

namespace gpt::ops::cuda {

void join_heads(const RotaryTables& rotary, int direction, const at::Tensor& q, const at::Tensor& k,
                const at::Tensor& v, const at::Tensor& packed) {
  const c10::cuda::CUDAGuard guard(packed.device());
  cuda::join_heads(StreamLaunch(), rotary, direction, q, k, v, packed);
}

}  // namespace gpt::ops::cuda
