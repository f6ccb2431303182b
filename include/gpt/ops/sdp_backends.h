// Which of LibTorch's kernels for attention on a GPU may be used, which is a setting of the process: its "SDP backends".
#pragma once

#include <ATen/SDPBackend.h>
#include <ATen/core/Tensor.h>

namespace gpt::ops {

struct SdpBackends {
  bool cudnn = false, flash = false, efficient = false, math = false;
  bool operator==(const SdpBackends&) const = default;
};

SdpBackends allowed_sdp_backends();
void allow_sdp_backends(const SdpBackends& backends);

// The only kernels that may be used within its scope.
class OnlySdpBackends {
 public:
  explicit OnlySdpBackends(const SdpBackends& backends) : before_(allowed_sdp_backends()) {
    allow_sdp_backends(backends);
  }
  ~OnlySdpBackends() { allow_sdp_backends(before_); }
  OnlySdpBackends(const OnlySdpBackends&) = delete;
  OnlySdpBackends& operator=(const OnlySdpBackends&) = delete;

 private:
  SdpBackends before_;
};

// Allowed kernels but for cuDNN's, which is planned anew for every number of keys, far longer than a token of a growing text takes, and
// refuses a single key. All others where it is the only one that is allowed.
SdpBackends without_cudnn();

// Allowed kernels that draw dropout with exactly this probability (cudnn_knows_dropout).
SdpBackends exact_for_dropout(double probability);

// The one that LibTorch chooses, of those that are allowed, under a causal mask alone; q (B, H, T, D), k and v (B, KV, T, D).
at::SDPBackend chosen_sdp_backend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double dropout);

}  // namespace gpt::ops
