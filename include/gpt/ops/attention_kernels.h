// Which of LibTorch's kernels for attention on a GPU may be used, which is a setting of the process.
#pragma once

namespace gpt::ops {

struct AttentionKernels {
  bool cudnn = false, flash = false, efficient = false, math = false;
  bool operator==(const AttentionKernels&) const = default;
};

AttentionKernels allowed_attention_kernels();
void allow_attention_kernels(const AttentionKernels& kernels);

// Within its scope these alone.
class OnlyAttentionKernels {
 public:
  explicit OnlyAttentionKernels(const AttentionKernels& kernels) : before_(allowed_attention_kernels()) {
    allow_attention_kernels(kernels);
  }
  ~OnlyAttentionKernels() { allow_attention_kernels(before_); }
  OnlyAttentionKernels(const OnlyAttentionKernels&) = delete;
  OnlyAttentionKernels& operator=(const OnlyAttentionKernels&) = delete;

 private:
  AttentionKernels before_;
};

// Those that are allowed, but for cuDNN's, which is planned anew for every number of keys, far longer than a token of a growing text
// takes, and refuses a single key. All others where it is the only one that is allowed.
AttentionKernels without_cudnn();

// Those that are allowed and draw dropout with exactly this probability (cudnn_knows_dropout).
AttentionKernels exact_for_dropout(double probability);

}  // namespace gpt::ops
