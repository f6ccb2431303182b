// Rows of a table, whose backward pass adds the gradient of each row that was looked up into the table's own gradient: an
// embedding that the head shares needs no second gradient of its size.
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/parameters/parameters.h"

namespace gpt::ops {

// ids (...) int64 of rows of `table` (V, C) -> (..., C).
at::Tensor embedding(const at::Tensor& ids, const Parameter& table);

}  // namespace gpt::ops
