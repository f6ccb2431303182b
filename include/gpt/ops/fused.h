// This program's own operators. Where there is none of ours for a device, they call ATen's.
#pragma once

#include "gpt/ops/operators.h"

namespace gpt::ops {

SharedOperators fused_operators();

// The same but for attention, which is LibTorch's.
SharedOperators with_aten_attention(SharedOperators inner);

}  // namespace gpt::ops
