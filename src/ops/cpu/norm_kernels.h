// The normalization's kernels that suit this processor.
#pragma once

#include <c10/util/BFloat16.h>

#include "gpt/simd/cpu_capability.h"
#include "norm_kernel.h"

namespace gpt::ops::cpu {

using Float32Norm = NormKernels<float, float>;
using BFloat16Norm = NormKernels<c10::BFloat16, c10::BFloat16>;
using MixedNorm = NormKernels<float, c10::BFloat16>;
GPT_CPU_KERNEL(Float32Norm, norm_float32)
GPT_CPU_KERNEL(BFloat16Norm, norm_bfloat16)
GPT_CPU_KERNEL(MixedNorm, norm_mixed)

}  // namespace gpt::ops::cpu
