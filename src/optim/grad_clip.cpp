#include "gpt/optim/grad_clip.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones_like.h>

#include "gpt/ops/block_norms.h"

namespace gpt {

// A sum of many squares in float32 loses up to a hundredth: only those of a block are summed so.
at::Tensor global_grad_norm(const at::Tensor& gradients) {
  return at::linalg_vector_norm(ops::block_norms(gradients), 2, /*dim=*/std::nullopt, /*keepdim=*/false, at::kDouble)
      .to(at::kFloat);
}

at::Tensor clip_divisor(const at::Tensor& norm, double max_norm) {
  if (max_norm == 0) return at::ones_like(norm);
  return ((norm + 1e-6) / max_norm).clamp_min(1);
}

}  // namespace gpt
