// The rows of a table that tokens name, with learned positions and dropout, in one pass. The backward pass adds their gradients to
// those of the tables, where they lie, so that an embedding which the head shares needs no second gradient of its size, and in
// an order that the ids alone determine: no atomics, the same bits every time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "gpt/ops/dropout_spec.h"
#include "gpt/parameters/parameters.h"

namespace gpt::ops {

// ids (B, T) int64 of rows of `table` (V, C) -> (B, T, C) of the type of its compute_value(): float32, bfloat16 or, on a GPU,
// float16. A gradient of 16 bits is rounded once for each row, to nearest, however often the row occurs.
//
//   positions: (positions, C), whose first rows are added to those of a sequence; empty: nothing is.
//   dropout: of the result. The sample is the sequence.
//   starts: (B, T) int32 as document_starts() has them, or undefined: positions begin anew with each document, and are
//     added by LibTorch's operators.
//
// Throws c10::Error for shapes or types that do not fit and, on a CPU, for ids outside the table.
at::Tensor embedding(const at::Tensor& ids, const parameters::Parameter& table,
                     const parameters::Parameter& positions = {}, const DropoutSpec& dropout = {},
                     const at::Tensor& starts = {});

}  // namespace gpt::ops
