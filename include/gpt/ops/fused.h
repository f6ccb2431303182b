// This program's own operators. Where there is none of ours for a device, they call ATen's.
#pragma once

#include "gpt/ops/operators.h"

namespace gpt::ops {

Operators fused_operators();

}  // namespace gpt::ops
