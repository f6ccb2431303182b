// The CPU's attention in vector instructions, for one batch entry and one key/value head at a time. attention_kernel.cpp is
// compiled for several kinds of processor (cmake/CpuKernels.cmake); attention_cpu.cpp allocates and distributes the work.
#pragma once

#include <cstdint>

#include "dropout_mask.h"

namespace gpt::ops::cpu {

// Letters as in gpt/ops/attention.h.
struct AttentionShape {
  int64_t B, T, H, KV, D;
  const float *cos = nullptr, *sin = nullptr;  // (T, D/2): rotate queries and keys; null: do not
  DropoutMask dropout = {};                    // of the weights

  // Queries and keys are taken in blocks of this many rows.
  static constexpr int64_t kBlock = 64;

  int64_t heads() const { return H + 2 * KV; }  // of the packed tensor
  int64_t group() const { return H / KV; }      // query heads per key/value head
  int64_t blocks() const { return (T + kBlock - 1) / kBlock; }
  // The width that a head's rows have in scratch memory: whole vectors, for every kind of processor.
  int64_t padded_width() const { return (D + 15) / 16 * 16; }
  // The contributions of a part's keys to the gradients of the queries: (group, T, padded width).
  int64_t query_sums() const { return group() * T * padded_width(); }
};

// What one call computes for a batch entry and a key/value head: every `parts`-th block from `part` on, of queries in the
// forward pass and of keys in the backward pass.
struct AttentionTask {
  int64_t batch, kv_head, part, parts;
};

// The kernels for tensors of type T.
template <class T>
struct AttentionKernels {
  // Floats of scratch memory, aligned to 64 bytes, that a task needs.
  int64_t (*forward_scratch)(const AttentionShape&);
  int64_t (*backward_scratch)(const AttentionShape&);

  // qkv (B, T, H + 2 KV, D) -> output (B, T, H, D), log_sum (B, H, T): base 2 logarithms of the sums of exponentials.
  void (*forward)(const AttentionShape&, const AttentionTask&, const T* qkv, T* output, float* log_sum, float* scratch);

  // Writes the part's keys and values into `gradient`, which has the form of qkv, and what the part's keys contribute to the
  // gradients of the queries into `query_sums`.
  void (*backward)(const AttentionShape&, const AttentionTask&, const T* qkv, const T* output, const float* log_sum,
                   const T* output_gradient, T* gradient, float* query_sums, float* scratch);

  // Adds the `query_sums` of all parts, which lie one after another, and writes the queries into `gradient`.
  void (*finish_queries)(const AttentionShape&, const AttentionTask&, float* query_sums, T* gradient);
};

}  // namespace gpt::ops::cpu
