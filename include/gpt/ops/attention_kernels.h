// Which of LibTorch's kernels for attention on a GPU may be used for a while.
#pragma once

#include <ATen/SDPBackend.h>

#include <array>
#include <initializer_list>

namespace gpt::ops {

// Within its scope these alone, whatever training.attention says.
class OnlyAttentionKernels {
 public:
  explicit OnlyAttentionKernels(std::initializer_list<at::SDPBackend> kernels);
  ~OnlyAttentionKernels();
  OnlyAttentionKernels(const OnlyAttentionKernels&) = delete;
  OnlyAttentionKernels& operator=(const OnlyAttentionKernels&) = delete;

 private:
  std::array<bool, 4> previous_;
};

// cuDNN plans its kernel anew for every number of keys, which takes far longer than a token of a text that grows, and it refuses a
// single key.
class AttentionWithoutCudnn : public OnlyAttentionKernels {
 public:
  AttentionWithoutCudnn();
};

}  // namespace gpt::ops
