// What is decided about an update before it changes a weight: whether its numbers are finite, whether they are a spike, and what its
// gradients are divided by. One kernel of one block does what would take LibTorch's operators dozens, each launched by itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace gpt::ops {

enum SpikePlace : int { kNoSpike = 0, kInLoss = 1, kInNorm = 2 };

// The verdict on an update: float32 on its device, scalars but for the last.
struct Verdict {
  at::Tensor grad_norm;  // norm of the gradients without the loss's scale, before clipping
  // 1 where the loss or the norm is not finite or is a spike, so that the update must change nothing; otherwise 0.
  at::Tensor skipped;
  // What to divide the gradients in memory by: the loss's scale times what brings their norm down to the limit.
  at::Tensor divisor;
  at::Tensor spike;  // (3): the SpikePlace of the update; the value there, and the median of those before it
};

// Counts over all updates so far: scalars on their device.
struct UpdateCounts {
  at::Tensor skipped, skipped_in_a_row;  // int64
  at::Tensor loss_sum, token_sum;  // float64: of the losses of all tokens of updates that were not skipped, and of them
};

// What updates are compared with to find spikes, on their device. Undefined tensors: nobody looks for any.
struct SpikeWatch {
  at::Tensor window;  // (2, n) float32: the losses and the norms of the last n accepted updates, in no particular order
  // int64 scalar: updates that the window has taken so far, or n to 2n - 1 once it is full. The next one's place is this modulo n.
  at::Tensor accepted;
  at::Tensor spikes;  // int64 scalar: how many there have been
  double threshold = 0;
};

struct Spike {
  bool is_in_loss = false;  // otherwise in the norm
  double value = 0, median = 0;
};

Verdict new_verdict(at::Device device);
UpdateCounts no_updates(at::Device device);
SpikeWatch new_watch(at::Device device, int64_t window, double threshold);

// The spike of the update that was judged last. Reads 4 bytes from the device, which waits for it.
std::optional<Spike> spike_of(const Verdict& verdict);

// What a verdict follows from: float32 scalars on one device.
struct Evidence {
  at::Tensor loss;         // the update's loss, the mean of its tokens
  at::Tensor norm;         // the norm of its gradients in memory, which are `scale` times what they should be
  at::Tensor scale;        // undefined: 1
  at::Tensor tokens = {};  // how many the update has; undefined: 1
};

// Overwrites the verdict and counts the update. max_norm: the limit of the norm; 0: none.
//
// With a watch whose window is full, a spike is a loss or norm above median + threshold * deviation of the window, where the deviation is
// 1.4826 times the median distance from the median, as it is the standard deviation of normal numbers, but of losses at least 0.5 % of the
// median, so that numbers that hardly differ leave room for a small change, and of norms, which scatter more, at least a fifth.
void judge(const Evidence& evidence, double max_norm, const Verdict& verdict, const UpdateCounts& counts,
           const SpikeWatch& watch = {});

}  // namespace gpt::ops
