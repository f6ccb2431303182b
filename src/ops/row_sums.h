// The gradient of a linear layer's bias is the sum of the layer's gradient over its rows. The operator that takes the layer's result
// writes that gradient in its backward pass, and its kernel can sum the rows on the way, so that the layer need not read it for the
// bias.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace gpt::ops {

// Shared by a layer and the operator that takes its result, from the backward pass of the latter to that of the former.
struct RowSums {
  at::Tensor gradient;  // gradient of the layer's result
  at::Tensor parts;     // (n, C) float32: their sum over n is that of the gradient's rows
};

// Null unless `y` comes from linear() with a bias that is trained and autograd will compute its gradient.
std::shared_ptr<RowSums> wanted_row_sums(const at::Tensor& y);

// Where `parts` is undefined the layer sums the gradient itself, as it does where it receives another gradient than this one.
inline void give_row_sums(const std::shared_ptr<RowSums>& wanted, const at::Tensor& gradient, const at::Tensor& parts) {
  if (wanted && parts.defined()) *wanted = {gradient, parts};
}

}  // namespace gpt::ops
