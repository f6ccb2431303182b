// What is decided about an update before it changes a weight: whether its numbers are finite, and what its gradients are divided by.
// One kernel of one thread does what would take LibTorch's operators some twenty, each launched by itself.
#pragma once

#include <ATen/core/Tensor.h>

namespace gpt::ops {

// The verdict on an update: float32 scalars on its device.
struct Verdict {
  at::Tensor grad_norm;  // norm of the gradients without the loss's scale, before clipping
  at::Tensor
      skipped;  // 1 where the loss or the norm is not finite, so that the update must change nothing; otherwise 0
  // What to divide the gradients in memory by: the loss's scale times what brings their norm down to the limit.
  at::Tensor divisor;
};

// Counts over all updates so far: scalars on their device.
struct UpdateCounts {
  at::Tensor skipped, skipped_in_a_row;  // int64
  at::Tensor loss_sum, token_sum;  // float64: of the losses of all tokens of updates that were not skipped, and of them
};

Verdict new_verdict(at::Device device);
UpdateCounts no_updates(at::Device device);

// What a verdict follows from: float32 scalars on one device.
struct Evidence {
  at::Tensor loss;         // the update's loss, the mean of its tokens
  at::Tensor norm;         // the norm of its gradients in memory, which are `scale` times what they should be
  at::Tensor scale;        // undefined: 1
  at::Tensor tokens = {};  // how many the update has; undefined: 1
};

// Overwrites the verdict and counts the update. max_norm: the limit of the norm; 0: none.
void judge(const Evidence& evidence, double max_norm, const Verdict& verdict, const UpdateCounts& counts);

}  // namespace gpt::ops
