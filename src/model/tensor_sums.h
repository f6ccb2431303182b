// What the processes of a tensor group exchange, as autograd sees it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "gpt/distributed/communicator.h"
#include "gpt/parameters/parameters.h"

namespace gpt {

using TensorGroup = std::shared_ptr<distributed::Communicator>;

// The sum over the group of y (..., C), in its memory, with `bias` (C) added once, if it is defined. The gradient of each process's y is
// that of the sum, which all have.
at::Tensor sum_over(const TensorGroup& group, const at::Tensor& y, const Parameter& bias);

// y itself, where only the backward pass of sum_over() counts.
at::Tensor with_bias_for_backward(const at::Tensor& y, const Parameter& bias);

// The gradient of x, to which each process contributes a part, becomes the sum over the group before it goes on. There is no node in
// between, so that operators still find the one that x comes from.
void sum_gradient_over(const TensorGroup& group, const at::Tensor& x);

// (processes, shape of x): what each has, x being of one shape in all.
at::Tensor gather_from(const TensorGroup& group, const at::Tensor& x);

}  // namespace gpt
