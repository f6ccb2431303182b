// Attention of texts that are being generated, each to all that its slot of a cache holds, on a CPU. The texts may have any lengths: one
// call computes them all, divided among the threads by texts, heads and parts of the keys.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "gpt/ops/heads.h"

namespace gpt::ops {

inline constexpr int64_t kMostFewTokens = 8;  // of a text; with more, attention of whole blocks of queries is faster

// What a text adds to its slot of a cache.
struct CachedTokens {
  int64_t slot;
  int64_t past;   // tokens that the slot holds already
  int64_t count;  // tokens that come
  int64_t first;  // the row of the first of these in queries, keys and values
};

// Puts the keys and values of the new tokens into the slots, then writes softmax(q k^T / sqrt(D)) v into the rows of y that they have,
// where each token sees its slot up to itself: all of that, or, where `window` is not 0, its last positions, and nothing before is read.
// heads: q (1, N, H, D), k and v (1, N, KV, D); keys and values (slots, KV, capacity, D); y (1, N, H D), contiguous. All have one type,
// float32 or bfloat16. Without gradients; sums are float32, and the same for every number of threads.
void cached_attention(const Heads& heads, const at::Tensor& keys, const at::Tensor& values,
                      std::span<const CachedTokens> texts, const at::Tensor& y, int64_t window = 0);

// The same where a query chooses the blocks that it sees, as BlockChoice says; blocks.top is not 0, and texts may have any number of tokens.
// means (slots, KV, capacity / blocks.size, D) float32, contiguous, are those of the blocks of keys that a slot has completely. They are
// extended by those that the new tokens complete.
void cached_chosen_attention(const Heads& heads, const at::Tensor& keys, const at::Tensor& values,
                             const at::Tensor& means, std::span<const CachedTokens> texts, const at::Tensor& y,
                             const BlockChoice& blocks);

}  // namespace gpt::ops
