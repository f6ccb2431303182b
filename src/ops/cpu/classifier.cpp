#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>

#include <algorithm>

#include "classifier_kernel.h"
#include "gpt/ops/classifier.h"
#include "gpt/simd/cpu_capability.h"
#include "ops/kernels.h"
#include "ops/row_arguments.h"
#include "row_grain.h"

namespace gpt::ops::cpu {

GPT_CPU_KERNEL(CrossEntropyKernel<float>, cross_entropy_float32)
GPT_CPU_KERNEL(CrossEntropyKernel<c10::BFloat16>, cross_entropy_bfloat16)

namespace {

template <class T>
void run(CrossEntropyKernel<T> kernel, const ClassifierOptions& options, const at::Tensor& logits,
         const at::Tensor& targets, const at::Tensor& losses, const at::Tensor& scale) {
  const auto rows = cross_entropy_rows<T>(options, logits, targets, losses, scale);
  at::parallel_for(0, logits.size(0), row_grain(logits.size(1)),
                   [&](int64_t begin, int64_t end) { kernel(rows, begin, end); });
}

}  // namespace

void cross_entropy(const ClassifierOptions& options, const at::Tensor& logits, const at::Tensor& targets,
                   const at::Tensor& losses, const at::Tensor& scale) {
  if (logits.scalar_type() == at::kFloat) {
    run(best_cross_entropy_float32(), options, logits, targets, losses, scale);
  } else {
    run(best_cross_entropy_bfloat16(), options, logits, targets, losses, scale);
  }
}

}  // namespace gpt::ops::cpu
