#include "gpt/ops/flat_norm.h"

#include <ATen/ops/linalg_vector_norm.h>

#include "gpt/layout/alignment.h"
#include "kernels.h"

namespace gpt::ops {
namespace {

void require_blocks(const at::Tensor& values) {
  TORCH_CHECK(values.dim() == 1 && values.is_contiguous() && values.numel() % layout::kParameterAlignment == 0,
              "flat_norm: takes contiguous values, a multiple of ", layout::kParameterAlignment, ", got ",
              values.sizes());
}

}  // namespace

at::Tensor flat_norm(const at::Tensor& values) {
  require_blocks(values);
  return kernels_of(values)->flat_norm(values);
}

at::Tensor block_norms(const at::Tensor& values) {
  require_blocks(values);
  if (values.is_cpu()) return cpu::block_norms(values);
  return at::linalg_vector_norm(values.view({-1, layout::kParameterAlignment}), 2, {1}, /*keepdim=*/false, at::kFloat);
}

at::Tensor norm_of_blocks(const at::Tensor& norms) {
  return at::linalg_vector_norm(norms, 2, /*dim=*/std::nullopt, /*keepdim=*/false, at::kDouble).to(at::kFloat);
}

}  // namespace gpt::ops
