#include "kernels.h"

namespace gpt::ops {

Kernels& kernels_of(const at::Tensor& x) {
  static Kernels cpu_kernels{.token_gather = cpu::token_gather,
                             .join_heads = cpu::join_heads,
                             .embedding = cpu::embedding,
                             .embedding_backward = cpu::embedding_backward,
                             .activation = cpu::activation,
                             .activation_backward = cpu::activation_backward,
                             .cross_entropy = cpu::cross_entropy,
                             .distillation = cpu::distillation,
                             .add_norm = cpu::add_norm,
                             .add_norm_backward = cpu::add_norm_backward,
                             .sum_rows = cpu::sum_rows,
                             .add_row_sums = cpu::add_row_sums,
                             .flat_norm = cpu::flat_norm,
                             .judge = cpu::judge,
                             .adamw = cpu::adamw,
                             .muon_direction = cpu::muon_direction,
                             .muon_update = cpu::muon_update,
                             .take_float16 = false};
#ifdef GPT_CUDA
  static Kernels cuda_kernels{.token_gather = cuda::token_gather,
                              .join_heads = cuda::join_heads,
                              .embedding = cuda::embedding,
                              .embedding_backward = cuda::embedding_backward,
                              .activation = cuda::activation,
                              .activation_backward = cuda::activation_backward,
                              .cross_entropy = cuda::cross_entropy,
                              .distillation = cuda::distillation,
                              .add_norm = cuda::add_norm,
                              .add_norm_backward = cuda::add_norm_backward,
                              .sum_rows = cuda::sum_rows,
                              .add_row_sums = cuda::add_row_sums,
                              .flat_norm = cuda::flat_norm,
                              .judge = cuda::judge,
                              .adamw = cuda::adamw,
                              .muon_direction = cuda::muon_direction,
                              .muon_update = cuda::muon_update,
                              .take_float16 = true};
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
