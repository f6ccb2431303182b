// Operators whose linear layers, in some of the blocks, are computed in 8 bits (gpt/ops/eight_bit_weights.h), to train.
#pragma once

#include <cstdint>

#include "gpt/ops/operators.h"
#include "gpt/products/eight_bit_factor.h"

namespace gpt::ops {

// Operators with 8 bits in the blocks from `first` to before `end`. `inner` must compute products as fused_operators() does. Weights are
// rounded anew after values_changed().
SharedOperators eight_bit_operators(SharedOperators inner, EightBitType type, bool all_products, int64_t first,
                                    int64_t end);

}  // namespace gpt::ops
