// Causal self-attention on the packed product of queries, keys and values, with optional rotary positions and dropout of the
// weights. On a CPU it is one pass of our own over blocks that stay in the cache; elsewhere it is ATen's
// scaled_dot_product_attention between split_heads() and its backward pass, or cuDNN's with a backward pass that writes the packed gradient.
//
//   B sequences of T positions; H query heads and KV heads of keys and values, each D wide; query head h uses key/value
//   head h / (H / KV).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "gpt/ops/heads.h"
#include "gpt/ops/kept_bytes.h"
#include "gpt/ops/rotary.h"

namespace gpt::ops {

// qkv (B, T, (H + 2 KV) D), float32, bfloat16 or, on a GPU, float16, contiguous: the query heads, then the key heads, then the value
// heads -> (B, T, H D) of the same type. On a GPU one that is moved in is rotated in place, as split_heads() says.
//
//   rotary: tables (T, 1, D/2) by which queries and keys are rotated first; undefined: they are not.
//   spec.norms: of queries and keys, before they are rotated.
//   spec.window, spec.document_starts: blocks of 64 x 64 scores that they hide are not computed on a CPU; elsewhere see aten_attention().
//   spec.blocks: blocks that a query does not choose cost nothing.
//   spec.dropout: of the weights; elsewhere than on a CPU by ATen's kernels. (first sample + B) H must not exceed 2^32.
//
// Differentiable once in qkv. The gradient is packed like qkv. On a CPU sums are float32, nothing of size T x T is kept, and
// the results are the same for every number of threads. Throws c10::Error for shapes or types that do not fit.
at::Tensor attention(at::Tensor qkv, const AttentionSpec& spec, const RotaryTables& rotary = {});

// Bytes that are kept of each token, with heads D wide and sequences of T tokens: queries, keys and values, the output, and for each head a
// number and the blocks that it chose. Where it is not fused, LibTorch's kernel works in float32 and keeps scaled queries and keys, the
// values and a weight for each position, with dropout also its mask and the weights that are left.
inline double attention_kept_bytes(const KeptForm& form, const AttentionSpec& spec, int64_t D, int64_t T, bool is_fused,
                                   bool is_rotated, bool is_normed) {
  const auto H = static_cast<double>(spec.heads), queries = static_cast<double>(spec.heads * D),
             keys = static_cast<double>(spec.kv_heads * D), output = form.value_size * queries;
  if (!is_fused) {
    const double weights = H * static_cast<double>(T) * (spec.dropout.probability > 0 ? 3 : 1);
    return kFloatBytes * (3 * queries + weights) + output;
  }
  // Our own kernels rotate while they read, or in place, and on a CPU normalize anew in the backward pass.
  const int copies = form.own ? (is_normed && form.cuda ? 1 : 0) : (is_rotated ? 1 : 0) + (is_normed ? 1 : 0);
  const double rotated = copies * form.value_size * (queries + keys);
  const double chosen = static_cast<double>(form.own ? sizeof(int32_t) * static_cast<size_t>(spec.blocks.top) : 0);
  return form.value_size * (queries + 2 * keys) + rotated + output + (kFloatBytes + chosen) * H;
}

}  // namespace gpt::ops
