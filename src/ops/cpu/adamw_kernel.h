// AdamW's update of a CPU in vector instructions. adamw_kernel.cpp is compiled for several kinds of processor
// (cmake/CpuKernels.cmake); adamw.cpp distributes the work.
#pragma once

#include <cstdint>

#include "ops/adamw_values.h"

namespace gpt::ops::cpu {

// For the blocks of kParameterAlignment values from `begin` to before `end`.
template <class M>
using AdamWKernel = void (*)(const AdamWValues<M>& of, const AdamWFactors& factors, const AdamWStep& step,
                             int64_t begin, int64_t end);

}  // namespace gpt::ops::cpu
