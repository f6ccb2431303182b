#include "kernels.h"

namespace gpt::ops {

Kernels& kernels_of(const at::Tensor& x) {
  static Kernels cpu_kernels{cpu::token_gather,       cpu::join_heads, cpu::embedding,
                             cpu::embedding_backward, cpu::activation, cpu::activation_backward,
                             cpu::cross_entropy,      cpu::add_norm,   cpu::add_norm_backward,
                             cpu::add_row_sums,       cpu::flat_norm,  cpu::adamw,
                             /*take_float16=*/false};
#ifdef GPT_CUDA
  static Kernels cuda_kernels{cuda::token_gather,       cuda::join_heads, cuda::embedding,
                              cuda::embedding_backward, cuda::activation, cuda::activation_backward,
                              cuda::cross_entropy,      cuda::add_norm,   cuda::add_norm_backward,
                              cuda::add_row_sums,       cuda::flat_norm,  cuda::adamw,
                              /*take_float16=*/true};
  if (x.is_cuda()) return cuda_kernels;
#endif
  TORCH_CHECK(x.is_cpu(), "this build has no kernels for ", x.device());
  return cpu_kernels;
}

void check_kernel_type(const char* name, const at::Tensor& x) {
  const at::ScalarType type = x.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16 || (type == at::kHalf && kernels_of(x).take_float16), name,
              ": takes float32 or bfloat16 and, on a GPU, float16, got ", type);
}

}  // namespace gpt::ops
