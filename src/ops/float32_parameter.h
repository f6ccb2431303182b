// Parameters for kernels that read float32.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include "gpt/parameters/parameters.h"

namespace gpt::ops {

// With `offset` added to each value. For small ones, such as those of norms: others are copied.
inline parameters::Parameter in_float32(const parameters::Parameter& parameter, double offset = 0) {
  if (!parameter.defined() || (offset == 0 && parameter.value().scalar_type() == at::kFloat)) return parameter;
  const at::Tensor values = parameter.value().detach().to(at::kFloat);
  return parameters::Parameter(offset == 0 ? values : values + offset);
}

}  // namespace gpt::ops
