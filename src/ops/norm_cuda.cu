#include <c10/cuda/CUDAGuard.h>

#include "kernels.h"
#include "norm_kernel.cuh"

namespace gpt::ops::cuda {

void add_norm(const Normalization& norm, const Dropout& dropout, const at::Tensor& x, const at::Tensor& branch,
              const at::Tensor& sum, const at::Tensor& normed, const at::Tensor& statistics) {
  const c10::cuda::CUDAGuard guard(x.device());
  cuda::add_norm(StreamLaunch(), norm, dropout, x, branch, sum, normed, statistics);
}

at::Tensor add_norm_backward(const Normalization& norm, const Dropout& dropout, const at::Tensor& sum,
                             const at::Tensor& statistics, const at::Tensor& sum_gradient,
                             const at::Tensor& normed_gradient, const at::Tensor& x_gradient,
                             const at::Tensor& branch_gradient, bool sums_branch) {
  const c10::cuda::CUDAGuard guard(sum.device());
  return cuda::add_norm_backward(StreamLaunch(), norm, dropout, sum, statistics, sum_gradient, normed_gradient,
                                 x_gradient, branch_gradient, sums_branch);
}

}  // namespace gpt::ops::cuda
