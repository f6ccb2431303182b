#include <c10/cuda/CUDAGuard.h>

#include "classifier_kernel.cuh"
#include "kernels.h"

namespace gpt::ops::cuda {

void cross_entropy(const ClassifierOptions& options, const at::Tensor& logits, const at::Tensor& targets,
                   const at::Tensor& losses, const at::Tensor& scale) {
  const c10::cuda::CUDAGuard guard(logits.device());
  cuda::cross_entropy(StreamLaunch(), options, logits, targets, losses, scale);
}

}  // namespace gpt::ops::cuda
