// What join_heads() (kernels.h) does to the heads of queries and keys on their way, and what it sums up.
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/ops/head_norms.h"
#include "gpt/ops/rotary.h"

namespace gpt::ops {

struct AttentionSpec;

struct HeadPass {
  int direction = 1;         // 1: normalize, then rotate; -1: the gradients of both, in the reverse order
  RotaryTables rotary = {};  // contiguous; or undefined, which rotates nothing
  HeadNorms norms = {};      // of float32; or none
  at::Tensor raw =
      {};  // (B, T, heads of queries and keys or more, D), contiguous: what was normalized, for its gradients
  bool sums_rows = false;
};

// Each in n parts, float32, whose sum over the first dimension it is.
struct HeadSums {
  at::Tensor
      of_rows;  // (n, heads of all x D): of what is packed, over the tokens; undefined: not asked for, or not to be had
  at::Tensor of_norms;  // (n, 2, D): the gradients of the weights of queries and keys; undefined: there are none
};

// (B, T, heads, D) contiguous, with the heads of queries and keys normalized, those of values as they are in qkv, which has the same form.
at::Tensor normed_heads(const at::Tensor& qkv, const AttentionSpec& spec);
// Turns `gradient`, that of normed_heads(), into that of qkv where it lies, and adds what the weights get to theirs.
void differentiate_normed_heads(const at::Tensor& qkv, const AttentionSpec& spec, const at::Tensor& gradient);
// Throws c10::Error unless the weights fit heads of this width on this device.
void check_head_norms(const HeadNorms& norms, const at::Tensor& qkv, int64_t D);

}  // namespace gpt::ops
