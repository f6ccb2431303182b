// Parameters, gradients and optimizer moments as (name, tensor) pairs in a fixed order: a "state dict".
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace gpt {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

}  // namespace gpt
