// The heads of the packed product of queries, keys and values, which a GPU's attention and the cache of generation take one kind
// at a time. They are views; only normalization and RoPE move values, in one pass, and the backward pass packs the three gradients in another.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "gpt/ops/dropout_spec.h"
#include "gpt/ops/head_norms.h"
#include "gpt/ops/rotary.h"

namespace gpt::ops {

// Which keys a query sees where it chooses (Lu et al. (2025), "MoBA: Mixture of Block Attention for Long-Context LLMs"). Positions are
// divided into blocks. A query sees its own block up to itself, and of the earlier ones the `top` whose means of the keys, rotated and in
// the type of the tensors, have the largest products with it; among equal ones, the nearer. The choice has no gradient.
struct BlockChoice {
  int64_t size = 64;  // positions of a block, a multiple of 64
  int64_t top = 0;    // 0: a query sees everything before it

  bool operator==(const BlockChoice&) const = default;
};
inline constexpr int64_t kMostTopBlocks = 256;

// What attention computes. The width of a head follows from the tensor.
struct AttentionSpec {
  int64_t heads, kv_heads;   // query head h uses key/value head h / (heads / kv_heads)
  DropoutSpec dropout = {};  // of the weights
  int64_t layer = -1;        // where it is called, for operators that do something else there
  int64_t window = 0;        // position t sees the positions t - window + 1 ... t; 0: all up to t
  // (B, T) int32, contiguous: the position where the document of each one begins, as ops::document_starts() has it. Nothing before that
  // is seen. Undefined: a sequence is one document.
  at::Tensor document_starts = {};
  BlockChoice blocks = {};  // without windows and documents, and on a CPU
  HeadNorms norms = {};     // or none

  bool is_windowed(int64_t T) const { return window > 0 && window < T; }
};

struct Heads {
  at::Tensor q, k, v;  // (B, T, H, D); (B, T, KV, D) twice; the values of a head lie side by side
};

// qkv (B, T, (H + 2 KV) D) of float32, bfloat16 or, on a GPU, float16: the query heads, then the key heads, then the value heads.
// rotary: tables (T, 1, D/2) by which queries and keys are rotated, in float32; undefined: they are not.
// spec.norms: computed in float32. Their gradients are added to the parameters' own memory.
//
// A qkv that is moved in and that nobody else holds, not even an operator for its backward pass, is changed in place, unless the backward
// pass of norms needs it; any other is left as it is, and queries and keys get memory of their own. Differentiable once in qkv; its
// gradient is packed likewise. Throws c10::Error for shapes or types that do not fit.
Heads split_heads(at::Tensor qkv, const AttentionSpec& spec, const RotaryTables& rotary = {});

}  // namespace gpt::ops
