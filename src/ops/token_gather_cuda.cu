#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>

#include "kernels.h"
#include "token_gather_kernel.cuh"

namespace gpt::ops::cuda {

void token_gather(const at::Tensor& inputs, const at::Tensor& targets, const at::Tensor& tokens,
                  const at::Tensor& starts) {
  const c10::cuda::CUDAGuard guard(tokens.device());
  const int64_t B = inputs.size(0), T = inputs.size(1), N = tokens.size(0);
  const auto threads = static_cast<unsigned>(std::min<int64_t>(256, (T + 31) / 32 * 32));
  const auto launch = [&](const auto* ids) {
    token_gather_kernel<<<static_cast<unsigned>(B), threads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        inputs.data_ptr<int64_t>(), targets.data_ptr<int64_t>(), ids, starts.const_data_ptr<int64_t>(), N, T);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  };
  if (tokens.scalar_type() == at::kUInt16) {
    launch(tokens.const_data_ptr<uint16_t>());
  } else {
    launch(tokens.const_data_ptr<int32_t>());
  }
}

}  // namespace gpt::ops::cuda
