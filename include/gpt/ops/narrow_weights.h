// Operators that generate on a CPU with weights of 16 bits. Activations stay float32, and each weight is read in its own type
// (products/row_product.h): a token takes as long as reading the weights, and half as many bytes take half as long. Without gradients.
#pragma once

#include "gpt/ops/operators.h"
#include "gpt/parameters/parameters.h"

namespace gpt::ops {

// For a model with these parameters, which have no master copy.
SharedOperators narrow_weight_operators(const parameters::Parameters& parameters);

}  // namespace gpt::ops
