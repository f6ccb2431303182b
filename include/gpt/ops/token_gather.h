// Windows of a token sequence as training pairs: for window b, inputs[b] = tokens[s .. s+T-1] and targets[b] the same
// shifted by one, with s = starts[b]. Both are widened to int64 in one pass.
//
//   tokens (N) uint16 or int32, contiguous; starts (B) int64, contiguous, each in [0, N - T - 1]; all on one device.
//
// On the CPU a start out of range throws; on CUDA, where the host does not see the values, it is a device assertion.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace gpt::ops {

// Returns (inputs, targets), each (B, T) int64.
std::pair<at::Tensor, at::Tensor> token_gather(const at::Tensor& tokens, const at::Tensor& starts, int64_t block_size);

// The same, into existing tensors: pinned memory, or the fixed inputs of a captured graph.
void token_gather_out(const at::Tensor& inputs, const at::Tensor& targets, const at::Tensor& tokens,
                      const at::Tensor& starts);

}  // namespace gpt::ops
