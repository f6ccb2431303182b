// The sets of operators: this program's own, and LibTorch's, which they are tested against.
#pragma once

#include "gpt/ops/operators.h"

namespace gpt::ops {

// Ours; where there is none for a device, they call LibTorch's.
SharedOperators fused_operators();
SharedOperators aten_operators();
// A set but for attention, which is LibTorch's.
SharedOperators with_aten_attention(SharedOperators inner);

}  // namespace gpt::ops
