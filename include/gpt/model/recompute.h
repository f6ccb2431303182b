// Gradient checkpointing (Chen et al., 2016): run a function without keeping what its backward pass needs, and run it
// again during the backward pass, with the same random numbers and autocast, so that gradients are bit-identical.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace gpt {

// body(inputs). Gradients flow to the inputs and, directly, into the leaf parameters that `body` uses. `body` must stay valid until the
// backward pass is done. `draws`: it draws random numbers, whose state is then saved, which a CUDA graph cannot record.
at::Tensor recompute_in_backward(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& body,
                                 const std::vector<at::Tensor>& inputs, bool draws);

}  // namespace gpt
