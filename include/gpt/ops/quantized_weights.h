// Operators that compute on a CPU with weights of 8 or 4 bits (products/quantized_product.h). Everything else, activations between the
// products and the cache of keys and values too, stays float32. Without gradients.
#pragma once

#include <vector>

#include "gpt/ops/operators.h"
#include "gpt/products/quantized_product.h"

namespace gpt::ops {

// For a model with these matrices: the value of a matrix's Parameter is its `panels`. Position embeddings are no such matrix. A table of
// token embeddings is of type int8.
SharedOperators quantized_weight_operators(const std::vector<PackedWeight>& weights);

}  // namespace gpt::ops
