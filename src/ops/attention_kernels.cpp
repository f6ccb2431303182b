#include "gpt/ops/attention_kernels.h"

#include <ATen/Context.h>

#include <algorithm>

namespace gpt::ops {
namespace {

using enum at::SDPBackend;

std::array<bool, 4> allowed() {
  const auto& context = at::globalContext();
  return {context.userEnabledFlashSDP(), context.userEnabledMemEfficientSDP(), context.userEnabledCuDNNSDP(),
          context.userEnabledMathSDP()};
}

void allow(const std::array<bool, 4>& kernels) {
  auto& context = at::globalContext();
  context.setSDPUseFlash(kernels[0]);
  context.setSDPUseMemEfficient(kernels[1]);
  context.setSDPUseCuDNN(kernels[2]);
  context.setSDPUseMath(kernels[3]);
}

}  // namespace

OnlyAttentionKernels::OnlyAttentionKernels(std::initializer_list<at::SDPBackend> kernels) : previous_(allowed()) {
  const auto has = [&](at::SDPBackend one) { return std::find(kernels.begin(), kernels.end(), one) != kernels.end(); };
  allow({has(flash_attention), has(efficient_attention), has(cudnn_attention), has(math)});
}

OnlyAttentionKernels::~OnlyAttentionKernels() { allow(previous_); }

AttentionWithoutCudnn::AttentionWithoutCudnn() : OnlyAttentionKernels({flash_attention, efficient_attention, math}) {}

}  // namespace gpt::ops
