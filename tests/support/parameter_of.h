// A parameter with memory of its own, in one of the forms that a model's may have.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include "gpt/parameters/parameters.h"

namespace gpt::test {

inline parameters::Parameter parameter_of(const at::Tensor& value, const parameters::ParameterTypes& types) {
  auto gradients = c10::make_intrusive<parameters::FlatGradients>(value.numel(), value.options().dtype(types.gradient));
  if (types.compute == at::kFloat) return parameters::Parameter(value, {}, std::move(gradients), 0);
  const at::Tensor rounded = value.to(types.compute);
  return types.has_master ? parameters::Parameter(value, rounded, std::move(gradients), 0)
                          : parameters::Parameter(rounded, {}, std::move(gradients), 0);
}

}  // namespace gpt::test
