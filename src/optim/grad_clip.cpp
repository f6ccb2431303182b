#include "gpt/optim/grad_clip.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones_like.h>

#include "gpt/parameters/parameter_table.h"

namespace gpt {

// A sum of many squares in float32 loses up to a hundredth: only those of a row are summed so.
at::Tensor global_grad_norm(const at::Tensor& gradients) {
  const at::Tensor rows =
      at::linalg_vector_norm(gradients.view({-1, kParameterAlignment}), 2, /*dim=*/1, /*keepdim=*/false, at::kFloat);
  return at::linalg_vector_norm(rows, 2, /*dim=*/std::nullopt, /*keepdim=*/false, at::kDouble).to(at::kFloat);
}

at::Tensor clip_divisor(const at::Tensor& norm, double max_norm) {
  if (max_norm == 0) return at::ones_like(norm);
  return ((norm + 1e-6) / max_norm).clamp_min(1);
}

}  // namespace gpt
