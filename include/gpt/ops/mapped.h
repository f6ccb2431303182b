// A linear map that is no operator of a device, such as what processes send to each other, as autograd sees it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>

namespace gpt::ops {

// Both are called without gradients. Neither changes what it is given.
struct LinearMap {
  std::function<at::Tensor(const at::Tensor& x)> forward;
  // The gradient of x, from that of what forward() gave.
  std::function<at::Tensor(const at::Tensor& gradient)> backward;
};

// What forward() gives. A product that is asked not to keep it (ProductInput::repeat) maps again what can be computed again of x. `trained`:
// something else that backward() adds a gradient to, which has to happen even where x needs none.
at::Tensor mapped(const at::Tensor& x, const LinearMap& map, const std::optional<at::Tensor>& trained = std::nullopt);

}  // namespace gpt::ops
