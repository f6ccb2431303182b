// A backward pass of causal attention by cuDNN that writes one gradient, packed as the queries, keys and values are. LibTorch's gives three
// tensors, which something has to pack.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>
#include <functional>

#include "gpt/ops/heads.h"

namespace gpt::ops::cuda {

// Contiguous tensors of one type, bfloat16 or float16: qkv (B, T, (H + 2 KV) D), output (B, T, H D).
struct PackedAttention {
  int64_t B, T, H, KV, D;
  at::ScalarType type;
  c10::DeviceIndex device;
  auto operator<=>(const PackedAttention&) const = default;
};

// What LibTorch's forward pass by cuDNN takes and gives.
struct AttentionPass {
  at::Tensor qkv, output, log_sum;  // log_sum (B, H, T) float32: of each query
};

// Whether cuDNN has such a backward pass. It is asked, in a second or less, when tensors of this shape are seen first, and not while a graph
// is recorded.
bool has_packed_backward(const PackedAttention& shape);

// Where it has: the gradient of qkv. The first one of a shape is compared with LibTorch's, whose three parts (B, T, heads, D) `by_libtorch`
// computes; where it differs, or cuDNN fails, a warning says so, and from then on gradients are packed from LibTorch's.
at::Tensor packed_backward(const PackedAttention& shape, const AttentionPass& pass, const at::Tensor& output_gradient,
                           const std::function<Heads()>& by_libtorch);

}  // namespace gpt::ops::cuda
