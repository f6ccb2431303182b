// Blocks that queries choose, as a CPU's attention takes them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "attention_shape.h"
#include "gpt/ops/heads.h"

namespace gpt::ops {

inline void check_choice(const AttentionSpec& spec, bool is_on_cpu) {
  const auto& [size, top] = spec.blocks;
  if (top == 0) return;
  TORCH_CHECK(size > 0 && size % cpu::AttentionShape::kBlock == 0 && top > 0 && top <= kMostTopBlocks,
              "attention: blocks have a multiple of ", cpu::AttentionShape::kBlock, " positions, and a query chooses ",
              "up to ", kMostTopBlocks, ", got ", top, " of ", size);
  TORCH_CHECK(is_on_cpu && spec.window == 0 && !spec.document_starts.defined(),
              "attention: queries choose blocks on a CPU, without windows and documents");
}

// Where no query has more blocks before its own than it may choose, it sees all.
inline void set_choice(const BlockChoice& blocks, cpu::AttentionShape& shape) {
  if (blocks.top > 0 && (shape.T - 1) / blocks.size > blocks.top)
    shape.choice_block = blocks.size, shape.top_blocks = blocks.top;
}

// Where the forward pass writes it; undefined where nobody chooses.
inline at::Tensor room_for_choice(cpu::AttentionShape& shape) {
  if (shape.top_blocks == 0) return {};
  const at::Tensor chosen = at::empty({shape.B, shape.H, shape.T, shape.top_blocks}, at::kInt);
  shape.chosen = chosen.mutable_data_ptr<int32_t>();
  return chosen;
}

}  // namespace gpt::ops
