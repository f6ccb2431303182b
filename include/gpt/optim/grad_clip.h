// Clipping of gradients by the norm of all of them (ops::flat_norm) without a host synchronization.
#pragma once

#include <ATen/core/Tensor.h>

namespace gpt {

// What to divide the gradients by so that this norm is at most max_norm: max(1, (norm + 1e-6) / max_norm), as
// torch.nn.utils.clip_grad_norm_ clips. max_norm 0 = off (returns 1).
at::Tensor clip_divisor(const at::Tensor& norm, double max_norm);

}  // namespace gpt
