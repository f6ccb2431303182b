// Gradient checkpointing (Chen et al., 2016): run a function without keeping what its backward needs, and run it again
// when the backward comes to it, with the same random numbers and the same autocast, so that gradients are the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace gpt {

// body(x). Gradients flow to x and, directly, into the leaf parameters that `body` uses. `body` must stay valid until the
// backward is done.
at::Tensor recompute_in_backward(const std::function<at::Tensor(const at::Tensor&)>& body, const at::Tensor& x);

}  // namespace gpt
