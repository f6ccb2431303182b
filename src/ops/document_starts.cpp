#include "gpt/ops/document_starts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cummax.h>

#include <tuple>

namespace gpt::ops {

at::Tensor document_starts(const at::Tensor& ids, int64_t separator) {
  TORCH_CHECK(ids.dim() == 2, "document_starts: ids must be (B, T), got ", ids.sizes());
  const at::Tensor positions = at::arange(ids.size(1), ids.options().dtype(at::kInt));
  return std::get<0>((positions * (ids == separator)).cummax(1));
}

}  // namespace gpt::ops
