// Tells how far a backward pass has come.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace gpt::model {

// x itself. reached() is called in the backward pass once the gradient of what is returned is complete, and so everything that was
// computed from it has been passed.
at::Tensor mark_gradient(const at::Tensor& x, const std::function<void()>& reached);

}  // namespace gpt::model
