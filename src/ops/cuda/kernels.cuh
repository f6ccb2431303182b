// All CUDA kernels behind kernels.h, by any launch.
#pragma once

#include "activation.cuh"
#include "adamw.cuh"
#include "classifier.cuh"
#include "distillation.cuh"
#include "embedding.cuh"
#include "flat_norm.cuh"
#include "heads.cuh"
#include "muon.cuh"
#include "norm.cuh"
#include "ops/kernels.h"
#include "row_sums.cuh"
#include "token_gather.cuh"
#include "verdict.cuh"

namespace gpt::ops::cuda {

template <class Launch>
Kernels kernels_by() {
#define GPT_KERNEL(name) .name = [](auto... of) { return cuda::name(Launch(), of...); },
  return {GPT_KERNELS(GPT_KERNEL).take_float16 = true};
#undef GPT_KERNEL
}

}  // namespace gpt::ops::cuda
