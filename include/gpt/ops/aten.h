// The model's operators as LibTorch has them. Our own use them on devices for which they have no kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/ops/operators.h"

namespace gpt::ops {

SharedOperators aten_operators();

// scaled_dot_product_attention by the kernel that LibTorch chooses: (B, T, H D).
at::Tensor aten_attention(const Heads& heads, double dropout);

}  // namespace gpt::ops
