#include <c10/cuda/CUDAGuard.h>

#include "embedding_kernel.cuh"
#include "kernels.h"

namespace gpt::ops::cuda {

void embedding(const Dropout& dropout, const at::Tensor& ids, const at::Tensor& table, const at::Tensor& positions,
               const at::Tensor& y) {
  const c10::cuda::CUDAGuard guard(table.device());
  cuda::embedding(StreamLaunch(), dropout, ids, table, positions, y);
}

void embedding_backward(const Dropout& dropout, const at::Tensor& ids, const at::Tensor& gradient,
                        const at::Tensor& of_table, const at::Tensor& of_positions) {
  const c10::cuda::CUDAGuard guard(gradient.device());
  cuda::embedding_backward(StreamLaunch(), dropout, ids, gradient, of_table, of_positions);
}

}  // namespace gpt::ops::cuda
