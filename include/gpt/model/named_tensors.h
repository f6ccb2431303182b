// Parameters, gradients and optimizer moments as (name, tensor) in a fixed order: the field's "state dict".
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace gpt {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

}  // namespace gpt
