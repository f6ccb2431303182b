#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>

#include "distillation_kernel.h"
#include "gpt/ops/operators.h"
#include "gpt/simd/cpu_capability.h"
#include "ops/kernels.h"
#include "ops/row_arguments.h"
#include "row_grain.h"

namespace gpt::ops::cpu {

GPT_CPU_KERNEL(DistillationKernel<float>, distillation_float32)
GPT_CPU_KERNEL(DistillationKernel<c10::BFloat16>, distillation_bfloat16)

void distillation(const ClassifierOptions& options, const at::Tensor& logits, const at::Tensor& teacher,
                  const at::Tensor& targets, const at::Tensor& losses, const at::Tensor& scale) {
  const auto run = [&]<class T>(DistillationKernel<T> kernel) {
    const auto rows = distillation_rows<T>(options, logits, teacher, targets, losses, scale);
    at::parallel_for(0, logits.size(0), row_grain(2 * logits.size(1)),
                     [&](int64_t begin, int64_t end) { kernel(rows, begin, end); });
  };
  if (logits.scalar_type() == at::kFloat) {
    run(best_distillation_float32());
  } else {
    run(best_distillation_bfloat16());
  }
}

}  // namespace gpt::ops::cpu
