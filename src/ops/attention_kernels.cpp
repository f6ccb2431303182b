#include "gpt/ops/attention_kernels.h"

#include <ATen/Context.h>

#include "gpt/config/training_config.h"

namespace gpt::ops {

AttentionKernels allowed_attention_kernels() {
  const auto& context = at::globalContext();
  return {.cudnn = context.userEnabledCuDNNSDP(),
          .flash = context.userEnabledFlashSDP(),
          .efficient = context.userEnabledMemEfficientSDP(),
          .math = context.userEnabledMathSDP()};
}

void allow_attention_kernels(const AttentionKernels& kernels) {
  auto& context = at::globalContext();
  context.setSDPUseCuDNN(kernels.cudnn);
  context.setSDPUseFlash(kernels.flash);
  context.setSDPUseMemEfficient(kernels.efficient);
  context.setSDPUseMath(kernels.math);
}

AttentionKernels without_cudnn() {
  AttentionKernels kernels = allowed_attention_kernels();
  kernels.cudnn = false;
  if (kernels == AttentionKernels()) return {.flash = true, .efficient = true, .math = true};
  return kernels;
}

AttentionKernels exact_for_dropout(double probability) {
  return cudnn_knows_dropout(probability) ? allowed_attention_kernels() : without_cudnn();
}

}  // namespace gpt::ops
