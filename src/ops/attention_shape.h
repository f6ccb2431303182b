// What the CPU's attention computes, and how it is divided into tasks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gpt/simd/dropout_mask.h"

namespace gpt::ops::cpu {

// Letters as in gpt/ops/attention.h.
struct AttentionShape {
  int64_t B, T, H, KV, D;
  const float *cos = nullptr, *sin = nullptr;  // (T, D/2): rotate queries and keys; null: do not
  DropoutMask dropout = {};                    // mask of the attention weights
  int64_t window = 0;                          // position t sees t - window + 1 ... t; 0: all up to t
  // (B, T): where in its sequence the document of each position begins, and it sees nothing before; null: all are of one document
  const int32_t* document_starts = nullptr;
  // Besides its own block of so many positions, a multiple of kBlock, a query sees the `top_blocks` earlier ones that are most important to
  // it; 0: all of them.
  int64_t choice_block = 0, top_blocks = 0;
  int32_t* chosen = nullptr;  // (B, H, T, top_blocks): their numbers, and -1 where there are no more

  // Queries and keys are taken in blocks of this many rows.
  static constexpr int64_t kBlock = 64;

  int64_t heads() const { return H + 2 * KV; }  // heads of the packed tensor
  int64_t group() const { return H / KV; }      // query heads per key/value head
  int64_t blocks() const { return (T + kBlock - 1) / kBlock; }
  // The width that a head's rows have in scratch memory: whole vectors, for every kind of processor.
  int64_t padded_width() const { return (D + 15) / 16 * 16; }
  // The first position that a query sees; the last one is its own. Of later queries it is never an earlier one.
  int64_t first_key(int64_t batch, int64_t query) const {
    const int64_t in_window = window > 0 ? std::max<int64_t>(0, query - window + 1) : 0;
    return document_starts ? std::max<int64_t>(in_window, document_starts[batch * T + query]) : in_window;
  }
  // The first block of keys that some query of a block sees; the last one is the queries' own.
  int64_t first_key_block(int64_t batch, int64_t query_block) const {
    return first_key(batch, query_block * kBlock) / kBlock;
  }
  // Blocks among which queries choose; the last one may not be complete.
  int64_t choice_blocks() const { return (T + choice_block - 1) / choice_block; }
  int32_t* chosen_by(int64_t batch, int64_t head, int64_t position) const {
    return chosen + ((batch * H + head) * T + position) * top_blocks;
  }
  // The contributions of a part's keys to the gradients of the queries: (group, blocks * kBlock, padded width).
  int64_t query_sums() const { return group() * blocks() * kBlock * padded_width(); }
};

// What one call computes for a batch entry and a key/value head: every `parts`-th block from `part` on, of queries in the
// forward pass and of keys in the backward pass.
struct AttentionTask {
  int64_t batch, kv_head, part, parts;

  // The first of a part's blocks that is not before `block`.
  int64_t first_from(int64_t block) const {
    return part + (std::max<int64_t>(0, block - part) + parts - 1) / parts * parts;
  }
};

}  // namespace gpt::ops::cpu
