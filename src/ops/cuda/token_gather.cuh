// The kernel of token_gather, compiled by nvcc and, under tests/support/cuda_emulation.h, by the host compiler, and how it is launched.
#pragma once

#include <c10/macros/Macros.h>

#include <algorithm>
#include <cstdint>

#include "launch.cuh"

namespace gpt::ops::cuda {

// One block per window. Reads and writes are coalesced; the second read of a token hits L1.
template <class Id>
__global__ void token_gather_kernel(int64_t* inputs, int64_t* targets, const Id* tokens, const int64_t* starts,
                                    int64_t N, int64_t T) {
  const int64_t b = blockIdx.x;
  const int64_t start = starts[b];
  CUDA_KERNEL_ASSERT(start >= 0 && start + T < N);
  for (int64_t t = threadIdx.x; t < T; t += blockDim.x) {
    inputs[b * T + t] = tokens[start + t];
    targets[b * T + t] = tokens[start + t + 1];
  }
}

// As cpu::token_gather().
template <class Launch>
void token_gather(const Launch& launch, const at::Tensor& inputs, const at::Tensor& targets, const at::Tensor& tokens,
                  const at::Tensor& starts) {
  const int64_t B = inputs.size(0), T = inputs.size(1), N = tokens.size(0);
  const auto threads = static_cast<unsigned>(std::min<int64_t>(256, (T + 31) / 32 * 32));
  const auto gather = [&](const auto* ids) {
    launch(token_gather_kernel<std::remove_cvref_t<decltype(*ids)>>, B, threads, write<int64_t>(inputs),
           write<int64_t>(targets), ids, read<int64_t>(starts), N, T);
  };
  if (tokens.scalar_type() == at::kUInt16) {
    gather(read<uint16_t>(tokens));
  } else {
    gather(read<int32_t>(tokens));
  }
}

}  // namespace gpt::ops::cuda
