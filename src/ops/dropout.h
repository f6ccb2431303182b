// What both passes of an operator draw their dropout mask from.
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/simd/dropout_mask.h"

namespace gpt::ops {

struct Dropout {
  cpu::DropoutMask mask;
  // On a GPU an int64 scalar there, in place of the mask's, so that drawing it does not wait for the device.
  at::Tensor key;

  explicit operator bool() const { return static_cast<bool>(mask); }
};

// With a key from ATen's default generator of the device of x. Throws c10::Error for a probability that is not in [0, 1).
Dropout draw_dropout(double probability, const at::Tensor& x);

}  // namespace gpt::ops
