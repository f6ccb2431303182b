#include <c10/cuda/CUDAGuard.h>

#include "activation_kernel.cuh"
#include "kernels.h"

namespace gpt::ops::cuda {

void activation(Activation activation, const Dropout& dropout, const at::Tensor& x, const at::Tensor& in,
                const at::Tensor& y) {
  const c10::cuda::CUDAGuard guard(x.device());
  cuda::activation(StreamLaunch(), activation, dropout, x, in, y);
}

at::Tensor activation_backward(Activation activation, const Dropout& dropout, const at::Tensor& x, const at::Tensor& in,
                               const at::Tensor& y_gradient, const at::Tensor& x_gradient,
                               const at::Tensor& in_gradient, bool sums_rows) {
  const c10::cuda::CUDAGuard guard(x.device());
  return cuda::activation_backward(StreamLaunch(), activation, dropout, x, in, y_gradient, x_gradient, in_gradient,
                                   sums_rows);
}

}  // namespace gpt::ops::cuda
