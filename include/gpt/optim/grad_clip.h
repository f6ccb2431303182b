// Global-norm gradient clipping without a host synchronization.
#pragma once

#include <ATen/core/Tensor.h>

namespace gpt {

// sqrt of the sum of squares of all gradients, a flat buffer of a multiple of kParameterAlignment: a float32 scalar on its
// device.
at::Tensor global_grad_norm(const at::Tensor& gradients);

// What to divide the gradients by so that their norm is at most max_norm: max(1, (norm + 1e-6) / max_norm), as
// torch.nn.utils.clip_grad_norm_ clips. max_norm 0 = off (returns 1).
at::Tensor clip_divisor(const at::Tensor& norm, double max_norm);

}  // namespace gpt
