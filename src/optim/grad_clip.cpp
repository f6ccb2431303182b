#include "gpt/optim/grad_clip.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>

namespace gpt {

at::Tensor clip_divisor(const at::Tensor& norm, double max_norm) {
  if (max_norm == 0) return at::ones_like(norm);
  return ((norm + 1e-6) / max_norm).clamp_min(1);
}

}  // namespace gpt
