// Parameters, gradients and optimizer moments as (name, tensor) pairs in a fixed order: a "state dict".
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpt/layout/parameter_table.h"

namespace gpt {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// The tensor of each row, found by its name. Throws gpt::Error(checkpoint) naming the first that is missing, misshapen or no
// row's, with `group` ("model", "exp_avg") before its name.
std::vector<at::Tensor> tensors_of_rows(const std::vector<ParameterRow>& rows, const NamedTensors& tensors,
                                        std::string_view group);

}  // namespace gpt
