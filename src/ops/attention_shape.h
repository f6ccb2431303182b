// What the CPU's attention computes, and how it is divided into tasks.
#pragma once

#include <cstdint>

#include "gpt/simd/dropout_mask.h"

namespace gpt::ops::cpu {

// Letters as in gpt/ops/attention.h.
struct AttentionShape {
  int64_t B, T, H, KV, D;
  const float *cos = nullptr, *sin = nullptr;  // (T, D/2): rotate queries and keys; null: do not
  DropoutMask dropout = {};                    // mask of the attention weights

  // Queries and keys are taken in blocks of this many rows.
  static constexpr int64_t kBlock = 64;

  int64_t heads() const { return H + 2 * KV; }  // heads of the packed tensor
  int64_t group() const { return H / KV; }      // query heads per key/value head
  int64_t blocks() const { return (T + kBlock - 1) / kBlock; }
  // The width that a head's rows have in scratch memory: whole vectors, for every kind of processor.
  int64_t padded_width() const { return (D + 15) / 16 * 16; }
  // The contributions of a part's keys to the gradients of the queries: (group, blocks * kBlock, padded width).
  int64_t query_sums() const { return group() * blocks() * kBlock * padded_width(); }
};

// What one call computes for a batch entry and a key/value head: every `parts`-th block from `part` on, of queries in the
// forward pass and of keys in the backward pass.
struct AttentionTask {
  int64_t batch, kv_head, part, parts;
};

}  // namespace gpt::ops::cpu
