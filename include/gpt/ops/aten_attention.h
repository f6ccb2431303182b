// Attention as LibTorch has it, which ours uses on devices for which it has no kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/ops/heads.h"

namespace gpt::ops {

// scaled_dot_product_attention by the kernel that LibTorch chooses: (B, T, H D). Where skips_windows(), a window is an argument of flash
// attention; elsewhere it is a mask (T, T), which saves nothing. Documents are always a mask, (B, 1, T, T), and so are blocks that queries
// choose, (B, H, T, T).
at::Tensor aten_attention(const Heads& heads, const AttentionSpec& spec);

// Whether these are on a GPU and its flash attention, which skips what a window hides, takes them and is allowed. It takes heads whose
// width is a multiple of 8.
bool skips_windows(const Heads& heads, double dropout);

// (queries, past + queries) bool: which of so many positions, the last of which are the queries' own, each query sees. window: of an
// AttentionSpec.
at::Tensor visible_positions(int64_t queries, int64_t past, int64_t window, at::Device device);

}  // namespace gpt::ops
