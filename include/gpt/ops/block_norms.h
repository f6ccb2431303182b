// The norms of short blocks of a long vector, from which the norm of all its values is computed without the loss of a long sum.
#pragma once

#include <ATen/core/Tensor.h>

namespace gpt::ops {

// The 2-norm of each block of kParameterAlignment values: (n) float32, bfloat16 or float16 -> (n / kParameterAlignment) float32,
// summed in float32. Throws c10::Error unless n is a multiple of kParameterAlignment and the values are contiguous.
at::Tensor block_norms(const at::Tensor& values);

}  // namespace gpt::ops
