#include "gpt/ops/document_starts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cummax.h>
#include <ATen/ops/zeros.h>

#include <tuple>

namespace gpt::ops {

at::Tensor document_starts(const at::Tensor& ids, int64_t separator) {
  TORCH_CHECK(ids.dim() == 2, "document_starts: ids must be (B, T), got ", ids.sizes());
  const at::Tensor positions = at::arange(ids.size(1), ids.options().dtype(at::kInt));
  return std::get<0>((positions * (ids == separator)).cummax(1));
}

at::Tensor positions_in_documents(const at::Tensor& starts) {
  TORCH_CHECK(starts.dim() == 2, "positions_in_documents: starts must be (B, T), got ", starts.sizes());
  return at::arange(starts.size(1), starts.options().dtype(at::kLong)) - starts;
}

at::Tensor position_rows(const at::Tensor& positions, const at::Tensor& starts, int64_t T) {
  if (!starts.defined()) return positions.narrow(0, 0, T);
  const at::Tensor places = positions_in_documents(starts);
  return positions.index_select(0, places.flatten()).view({places.size(0), places.size(1), positions.size(1)});
}

// On a GPU index_add_() adds to 16 bits in the memory, which rounds every time; on a CPU LibTorch 2.11 sums in float32.
void add_position_rows(const at::Tensor& gradient, const at::Tensor& places, const at::Tensor& rows) {
  const at::Tensor exact = rows.to(at::kFloat);
  if (gradient.scalar_type() == at::kFloat) {
    gradient.index_add_(0, places, exact);
    return;
  }
  const at::Tensor sums = at::zeros(gradient.sizes(), gradient.options().dtype(at::kFloat));
  gradient.add_(sums.index_add_(0, places, exact));
}

}  // namespace gpt::ops
