#include "gpt/optim/grad_clip.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>

namespace gpt {
namespace {

// Squares are summed in float32 within a part, and the parts' norms in a second sum, so that the error stays small however
// many there are.
constexpr int64_t kPart = 1 << 20;

}  // namespace

at::Tensor global_grad_norm(const at::Tensor& gradients) {
  return at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients.flatten().split(kPart), 2, at::kFloat)));
}

at::Tensor clip_divisor(const at::Tensor& norm, double max_norm) {
  if (max_norm == 0) return at::ones_like(norm);
  return ((norm + 1e-6) / max_norm).clamp_min(1);
}

}  // namespace gpt
