#include "gpt/ops/block_norms.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>

#include "block_norms_kernel.h"
#include "cpu_capability.h"
#include "gpt/parameters/alignment.h"
#include "row_grain.h"

namespace gpt::ops {
namespace cpu {

GPT_CPU_KERNEL(BlockNormsKernel<float>, block_norms_float32)
GPT_CPU_KERNEL(BlockNormsKernel<c10::BFloat16>, block_norms_bfloat16)

namespace {

template <class T>
at::Tensor block_norms(const at::Tensor& values, BlockNormsKernel<T> kernel) {
  at::Tensor norms = at::empty({values.numel() / kParameterAlignment}, at::kFloat);
  const T* from = values.const_data_ptr<T>();
  auto* to = norms.mutable_data_ptr<float>();
  at::parallel_for(0, norms.numel(), row_grain(kParameterAlignment),
                   [&](int64_t begin, int64_t end) { kernel(from, begin, end, to); });
  return norms;
}

}  // namespace
}  // namespace cpu

// perf: OPT-21. On a CPU ATen sums rows slowly, and 16-bit values only after it has copied all of them to float32.
at::Tensor block_norms(const at::Tensor& values) {
  TORCH_CHECK(values.dim() == 1 && values.is_contiguous() && values.numel() % kParameterAlignment == 0,
              "block_norms: takes contiguous values, a multiple of ", kParameterAlignment, ", got ", values.sizes());
  if (values.is_cpu() && values.scalar_type() == at::kFloat)
    return cpu::block_norms<float>(values, cpu::best_block_norms_float32());
  if (values.is_cpu() && values.scalar_type() == at::kBFloat16)
    return cpu::block_norms<c10::BFloat16>(values, cpu::best_block_norms_bfloat16());
  return at::linalg_vector_norm(values.view({-1, kParameterAlignment}), 2, /*dim=*/1, /*keepdim=*/false, at::kFloat);
}

}  // namespace gpt::ops
