// The kernel of token_gather, compiled by nvcc and, under tests/support/cuda_emulation.h, by the host compiler.
#pragma once

#include <c10/macros/Macros.h>

#include <cstdint>

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

}  // namespace gpt::ops::cuda
