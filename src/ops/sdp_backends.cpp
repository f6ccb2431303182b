#include "gpt/ops/sdp_backends.h"

#include <ATen/Context.h>
#include <ATen/ops/_fused_sdp_choice.h>

#include "gpt/config/training_config.h"

namespace gpt::ops {

SdpBackends allowed_sdp_backends() {
  const auto& context = at::globalContext();
  return {.cudnn = context.userEnabledCuDNNSDP(),
          .flash = context.userEnabledFlashSDP(),
          .efficient = context.userEnabledMemEfficientSDP(),
          .math = context.userEnabledMathSDP()};
}

void allow_sdp_backends(const SdpBackends& backends) {
  auto& context = at::globalContext();
  context.setSDPUseCuDNN(backends.cudnn);
  context.setSDPUseFlash(backends.flash);
  context.setSDPUseMemEfficient(backends.efficient);
  context.setSDPUseMath(backends.math);
}

SdpBackends without_cudnn() {
  SdpBackends backends = allowed_sdp_backends();
  backends.cudnn = false;
  if (backends == SdpBackends()) return {.flash = true, .efficient = true, .math = true};
  return backends;
}

SdpBackends exact_for_dropout(double probability) {
  return cudnn_knows_dropout(probability) ? allowed_sdp_backends() : without_cudnn();
}

at::SDPBackend chosen_sdp_backend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double dropout) {
  return static_cast<at::SDPBackend>(at::_fused_sdp_choice(q, k, v, /*attn_mask=*/{}, dropout, /*is_causal=*/true,
                                                           /*scale=*/std::nullopt,
                                                           /*enable_gqa=*/k.size(1) < q.size(1)));
}

}  // namespace gpt::ops
