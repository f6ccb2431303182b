// The gradient of what goes into GELU is that of its result times the slope. The layer that takes the result computes the latter in its
// backward pass, and the product's kernel can multiply by the slope on the way, so that no kernel of the activation need read and write
// it again.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>

namespace gpt::ops {

// Shared by an activation and the layer that takes its result, from the backward pass of the latter to that of the former.
struct GeluGradient {
  at::Tensor gradient;      // of what went into GELU
  at::Tensor sums;          // (1, C) float32: of its rows
  bool is_claimed = false;  // by the layer, which must be the only one that takes the result
};

struct GeluSource {
  std::function<at::Tensor()> input;  // what went into GELU, until the backward pass of the activation
  std::shared_ptr<GeluGradient> gradient;
};

// Empty unless `y` comes from activate() or activated() with GELU, autograd will compute its gradient, and no other layer has asked.
std::optional<GeluSource> claim_gelu(const at::Tensor& y);

}  // namespace gpt::ops
