// The CPU's attention in vector instructions, for one batch entry and one key/value head at a time. attention_kernel.cpp and
// chosen_attention_kernel.cpp, for blocks that each query chooses, are compiled for several kinds of processor (cmake/CpuKernels.cmake);
// attention.cpp allocates and distributes the work.
#pragma once

#include <cstdint>

#include "ops/attention_shape.h"

namespace gpt::ops::cpu {

// The kernels for tensors of type T.
template <class T>
struct AttentionKernels {
  // Floats of scratch memory, aligned to 64 bytes, that a task needs.
  int64_t (*forward_scratch)(const AttentionShape&);
  int64_t (*backward_scratch)(const AttentionShape&);

  // qkv (B, T, H + 2 KV, D) -> output (B, T, H, D), log_sum (B, H, T): base 2 logarithms of the sums of exponentials;
  // and shape.chosen, where queries choose, which the other passes read.
  void (*forward)(const AttentionShape&, const AttentionTask&, const T* qkv, T* output, float* log_sum, float* scratch);

  // Writes the part's keys and values into `gradient`, which has the form of qkv, and what the part's keys contribute to the
  // gradients of the queries into `query_sums`.
  void (*backward)(const AttentionShape&, const AttentionTask&, const T* qkv, const T* output, const float* log_sum,
                   const T* output_gradient, T* gradient, float* query_sums, float* scratch);

  // Adds the `query_sums` of all parts, which lie one after another, and writes the queries into `gradient`.
  void (*finish_queries)(const AttentionShape&, const AttentionTask&, float* query_sums, T* gradient);
};

}  // namespace gpt::ops::cpu
