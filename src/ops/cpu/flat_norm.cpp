#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "block_norms_kernel.h"
#include "gpt/layout/alignment.h"
#include "gpt/ops/flat_norm.h"
#include "gpt/simd/cpu_capability.h"
#include "ops/kernels.h"
#include "row_grain.h"

namespace gpt::ops::cpu {

GPT_CPU_KERNEL(BlockNormsKernel<float>, block_norms_float32)
GPT_CPU_KERNEL(BlockNormsKernel<c10::BFloat16>, block_norms_bfloat16)

namespace {

template <class T>
at::Tensor block_norms(const at::Tensor& values, BlockNormsKernel<T> kernel) {
  at::Tensor norms = at::empty({values.numel() / layout::kParameterAlignment}, at::kFloat);
  const T* from = values.const_data_ptr<T>();
  auto* to = norms.mutable_data_ptr<float>();
  at::parallel_for(0, norms.numel(), row_grain(layout::kParameterAlignment),
                   [&](int64_t begin, int64_t end) { kernel(from, begin, end, to); });
  return norms;
}

}  // namespace

// perf: OPT-21. ATen sums rows slowly, and 16-bit values only after it has copied all of them to float32.
at::Tensor block_norms(const at::Tensor& values) {
  if (values.scalar_type() == at::kFloat) return block_norms<float>(values, best_block_norms_float32());
  return block_norms<c10::BFloat16>(values, best_block_norms_bfloat16());
}

at::Tensor flat_norm(const at::Tensor& values) { return norm_of_blocks(block_norms(values)); }

}  // namespace gpt::ops::cpu
