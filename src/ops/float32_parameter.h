// Parameters for kernels that read float32.
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/parameters/parameters.h"

namespace gpt::ops {

// For small ones, such as those of norms: others are copied.
inline Parameter in_float32(const Parameter& parameter) {
  if (!parameter.defined() || parameter.value().scalar_type() == at::kFloat) return parameter;
  return Parameter(parameter.value().detach().to(at::kFloat));
}

}  // namespace gpt::ops
