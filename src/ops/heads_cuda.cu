#include <c10/cuda/CUDAGuard.h>

#include "heads_kernel.cuh"
#include "kernels.h"

namespace gpt::ops::cuda {

at::Tensor join_heads(const RotaryTables& rotary, int direction, const at::Tensor& q, const at::Tensor& k,
                      const at::Tensor& v, const at::Tensor& packed, bool sums_rows) {
  const c10::cuda::CUDAGuard guard(packed.device());
  return cuda::join_heads(StreamLaunch(), rotary, direction, q, k, v, packed, sums_rows);
}

}  // namespace gpt::ops::cuda
