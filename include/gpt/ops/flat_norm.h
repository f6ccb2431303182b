// The 2-norm of a long vector, such as all gradients of a model.
#pragma once

#include <ATen/core/Tensor.h>

namespace gpt::ops {

// sqrt of the sum of squares: (n) float32, bfloat16 or float16 -> a float32 scalar on the same device. A sum of many squares in float32
// loses up to a hundredth, so at most kParameterAlignment of them are summed in float32, and those sums in float64. Not finite where
// a value is not. Throws c10::Error unless n is a multiple of kParameterAlignment and the values are contiguous.
at::Tensor flat_norm(const at::Tensor& values);

}  // namespace gpt::ops
