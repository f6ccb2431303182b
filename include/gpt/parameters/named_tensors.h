// Parameters, gradients and optimizer moments as (name, tensor) pairs in a fixed order: a "state dict".
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpt/layout/parameter_table.h"

namespace gpt::parameters {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// The part of a whole tensor that a row is: the tensor itself, or where the row is cut a copy of its pieces.
at::Tensor part_of(const layout::ParameterRow& row, const at::Tensor& whole);
// The values (n) that [begin, end) of a part are go to their places among those of the whole tensor (m), as layout/cut.h has them.
void put_in_whole(const layout::RowCut* cut, layout::FlatSpan of_part, const at::Tensor& values,
                  const at::Tensor& whole);

// The whole tensor of each row, found by its name. Throws gpt::Error(checkpoint) naming the first that is missing, misshapen or no
// row's, with `group` ("model", "exp_avg") before its name.
std::vector<at::Tensor> tensors_of_rows(const std::vector<layout::ParameterRow>& rows, const NamedTensors& tensors,
                                        std::string_view group);

// The tensors of these rows; what else there is, is left out.
NamedTensors tensors_named_by(const std::vector<layout::ParameterRow>& rows, const NamedTensors& tensors);

}  // namespace gpt::parameters
