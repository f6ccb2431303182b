// The 2-norm of a long vector, such as all gradients of a model.
#pragma once

#include <ATen/core/Tensor.h>

namespace gpt::ops {

// sqrt of the sum of squares: (n) float32, bfloat16 or float16 -> a float32 scalar on the same device. A sum of many squares in float32
// loses up to a hundredth, so at most kParameterAlignment of them are summed in float32, and those sums in float64. Not finite where
// a value is not. Throws c10::Error unless n is a multiple of kParameterAlignment and the values are contiguous.
at::Tensor flat_norm(const at::Tensor& values);

// The two halves of it, where several processes have a part of the values each: (n) -> (n / kParameterAlignment) float32, the norm of each
// block, and from those of all blocks the norm of all values. On a CPU they give the bits of flat_norm().
at::Tensor block_norms(const at::Tensor& values);
at::Tensor norm_of_blocks(const at::Tensor& norms);

}  // namespace gpt::ops
