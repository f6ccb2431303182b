// The CUDA kernels on the current stream. They are one source, because nvcc spends most of its time on LibTorch's headers.
#include "kernels.cuh"

namespace gpt::ops {

Kernels& cuda_kernels() {
  static Kernels kernels = cuda::kernels_by<cuda::StreamLaunch>();
  return kernels;
}

}  // namespace gpt::ops
