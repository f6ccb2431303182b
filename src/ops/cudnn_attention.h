// cuDNN's causal attention, whose backward pass writes one gradient, packed as the queries, keys and values are. LibTorch's gives three
// tensors, which something has to pack.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>

namespace gpt::ops::cuda {

// Contiguous tensors of one type, bfloat16 or float16: qkv (B, T, (H + 2 KV) D), output (B, T, H D).
struct PackedAttention {
  int64_t B, T, H, KV, D;
  at::ScalarType type;
  bool is_deterministic;
  auto operator<=>(const PackedAttention&) const = default;
};

// Whether cuDNN has a backward pass for these on the current device. It is asked, in a second or less, when they are seen first, and not
// while a graph is recorded.
bool has_packed_backward(const PackedAttention& shape);

// Where it has. log_sum (B, H, T) float32: of each query, what LibTorch's forward pass by cuDNN returns. Writes `gradient`, that of qkv.
void packed_backward(const PackedAttention& shape, const at::Tensor& qkv, const at::Tensor& output,
                     const at::Tensor& log_sum, const at::Tensor& output_gradient, const at::Tensor& gradient);

}  // namespace gpt::ops::cuda
