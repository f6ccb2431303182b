#include "gpt/ops/flat_norm.h"

#include "gpt/layout/alignment.h"
#include "kernels.h"

namespace gpt::ops {

at::Tensor flat_norm(const at::Tensor& values) {
  TORCH_CHECK(values.dim() == 1 && values.is_contiguous() && values.numel() % kParameterAlignment == 0,
              "flat_norm: takes contiguous values, a multiple of ", kParameterAlignment, ", got ", values.sizes());
  return kernels_of(values).flat_norm(values);
}

}  // namespace gpt::ops
