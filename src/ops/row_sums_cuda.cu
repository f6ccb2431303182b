#include <c10/cuda/CUDAGuard.h>

#include "kernels.h"
#include "row_sums_kernel.cuh"

namespace gpt::ops::cuda {

void add_row_sums(c10::ArrayRef<Parameter> parameters, const at::Tensor& parts) {
  const c10::cuda::CUDAGuard guard(parts.device());
  cuda::add_row_sums(StreamLaunch(), parameters, parts);
}

}  // namespace gpt::ops::cuda
