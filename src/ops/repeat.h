// How a product that is asked not to keep its input gets it back in the backward pass: the operator that the input came from keeps
// what it needs for its own backward pass, which comes later, and computes its result from that again.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace gpt::ops {

using Repeat = std::function<at::Tensor()>;

// Computes again the `normed` that add_norm() gave, or what activate() and activate_gated() gave, with the same dropout; the same
// bits where the residual stream has 32. Empty for any other tensor. It can be called until the backward pass of that operator.
Repeat repeat_norm(const at::Tensor& normed);
Repeat repeat_activation(const at::Tensor& y);

// The same of whatever gave x, a map of one of these (gpt/ops/mapped.h) among them.
Repeat repeat_of(const at::Tensor& x);

}  // namespace gpt::ops
