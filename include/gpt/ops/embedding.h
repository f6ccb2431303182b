// Looks up rows of a table. The backward pass adds their gradients to that of the table; on a CPU it does so row by row, so
// that an embedding which the head shares needs no second gradient of its size.
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/parameters/parameters.h"

namespace gpt::ops {

// ids (...) int64 of rows of `table` (V, C) -> (..., C) of the type of its compute_value().
at::Tensor embedding(const at::Tensor& ids, const Parameter& table);

}  // namespace gpt::ops
