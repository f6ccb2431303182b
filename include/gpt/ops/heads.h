// The heads of the packed product of queries, keys and values, which a GPU's attention and the cache of generation take one kind
// at a time. They are views; only RoPE moves values, in one pass, and the backward pass packs the three gradients in another.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "gpt/ops/rotary.h"

namespace gpt::ops {

struct Heads {
  at::Tensor q, k, v;  // (B, T, H, D); (B, T, KV, D) twice; the values of a head lie side by side
};

// qkv (B, T, (H + 2 KV) D) of float32, bfloat16 or, on a GPU, float16: the query heads, then the key heads, then the value heads.
// rotary: tables (T, 1, D/2) by which queries and keys are rotated, in float32; undefined: they are not.
//
// A qkv that is moved in and that nobody else holds, not even an operator for its backward pass, is rotated in place; any other is
// left as it is, and queries and keys get memory of their own. Differentiable once in qkv; its gradient is packed likewise. Throws
// c10::Error for shapes or types that do not fit.
Heads split_heads(at::Tensor qkv, int64_t n_head, int64_t n_kv_head, const RotaryTables& rotary = {});

}  // namespace gpt::ops
