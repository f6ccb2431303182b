#include "attention_kernel.h"

#include <c10/util/BFloat16.h>

#include <algorithm>

#include "attention_tile.h"

// Everything is computed in float32 in blocks of 64 x 64 scores that stay in the cache; 16-bit values are converted as they
// are packed, which is little work beside the products. On processors with dot products of bfloat16 values or with a matrix unit the factors
// of the products are rounded to it, as the formula of 16-bit tensors is (pairs.h), and sums stay float32. Blocks that the window or other
// documents hide are skipped whole, and products skip what is hidden of the others, to within a tile.

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

template <class T>
void forward(const AttentionShape& shape, const AttentionTask& task, const T* qkv, T* output, float* log_sum,
             float* memory) {
  const TileScope tiles;
  const ForwardScratch<FactorOf<T>> scratch(shape, Arena(memory));
  const Dropout dropout(shape, scratch.factors);
  const TaskHeads packed(qkv, shape.heads(), shape, task);
  const TaskHeads to(output, shape.H, shape, task);
  const int64_t width = shape.padded_width(), first_matrix = task.batch * shape.H + task.kv_head * shape.group();
  pack_keys_and_values(shape, packed, scratch, [](int64_t, int64_t, Matrix) {});
  Ahead ahead;
  if (const auto next = following(shape, task)) {
    ahead.add_packed(TaskHeads(qkv, shape.heads(), shape, *next), shape);
    ahead.add(TaskHeads(output, shape.H, shape, *next).query(0, 0), shape);
  }
  const RunningSums& running = scratch.running;
  for (int64_t g = 0; g < shape.group(); ++g) {
    const int64_t matrix = first_matrix + g, head = task.kv_head * shape.group() + g;
    for (int64_t block = task.part; block < shape.blocks(); block += task.parts) {
      const int64_t position = block * kBlock, rows = block_rows(shape, block);
      pack(packed.query(g, position), rows, shape, score_factor(shape), position, scratch.sums);
      as_columns(scratch.sums, round_up(rows, kColumns), width, scratch.query_rows, scratch.queries);
      std::fill(running.maximum, running.maximum + kBlock, kLowestScore);
      const FirstKeys first_keys(shape, task.batch, block);
      const int64_t first = shape.first_key_block(task.batch, block);
      for (int64_t key_block = first; key_block <= block; ++key_block) {
        const Causal causal(shape, first_keys, block, key_block);
        dropout.draw(causal, task.batch, head, block, key_block);
        attend(shape, scratch, causal, key_block, dropout, key_block == first, scratch.sums, ahead);
      }
      finish(running.maximum, running.sum, rows);
      std::copy(running.maximum, running.maximum + rows, log_sum + matrix * shape.T + position);
      const Head<T> y = to.query(g, position);
      convert(
          scratch.sums.data, scratch.sums.stride, rows, shape.D, [&](int64_t i) { return running.sum[i]; }, y.data,
          y.stride);
    }
  }
}

// A block of queries with the output y and its gradient dy.
template <class E, class T>
void pack_queries(const AttentionShape& shape, int64_t block, Head<const T> queries, Head<const T> y, Head<const T> dy,
                  const BackwardScratch<E>& scratch) {
  const int64_t rows = block_rows(shape, block);
  dots(y, dy, rows, shape.D, Matrix{scratch.weights.data, kColumns}, scratch.score_gradients, scratch.deltas);
  pack(queries, rows, shape, score_factor(shape), block * kBlock, scratch.packed_queries);
  pack(dy, rows, shape, 1, -1, scratch.packed_output_gradients);
  arrange_queries(scratch, rows);
}

template <class T>
void backward(const AttentionShape& shape, const AttentionTask& task, const T* qkv, const T* output,
              const float* log_sum, const T* output_gradient, T* gradient, float* query_sums, float* memory) {
  const TileScope tiles;
  const BackwardScratch<FactorOf<T>> scratch(shape, Arena(memory));
  const Dropout dropout(shape, scratch.factors);
  const TaskHeads packed(qkv, shape.heads(), shape, task);
  const TaskHeads y(output, shape.H, shape, task), dy(output_gradient, shape.H, shape, task);
  const int64_t width = shape.padded_width(), first_matrix = task.batch * shape.H + task.kv_head * shape.group();
  pack_keys(shape, task, packed, scratch);
  Ahead ahead;
  if (const auto next = following(shape, task)) {
    ahead.add_packed(TaskHeads(qkv, shape.heads(), shape, *next), shape);
    ahead.add_packed(TaskHeads(gradient, shape.heads(), shape, *next), shape);
    for (const T* tensor : {output, output_gradient})
      ahead.add(TaskHeads(tensor, shape.H, shape, *next).query(0, 0), shape);
  }
  for (int64_t g = 0; g < shape.group(); ++g) {
    const int64_t matrix = first_matrix + g, head = task.kv_head * shape.group() + g;
    for (int64_t block = task.part; block < shape.blocks(); ++block) {
      const int64_t position = block * kBlock, first = task.first_from(shape.first_key_block(task.batch, block));
      if (first > block) continue;
      pack_queries(shape, block, packed.query(g, position), y.query(g, position), dy.query(g, position), scratch);
      const float* log_sums = log_sum + matrix * shape.T + position;
      std::copy(log_sums, log_sums + block_rows(shape, block), scratch.log_sums);
      const Matrix query_gradients{query_sums + (g * shape.blocks() * kBlock + position) * width, width};
      const FirstKeys first_keys(shape, task.batch, block);
      for (int64_t key_block = first; key_block <= block; key_block += task.parts) {
        const Causal causal(shape, first_keys, block, key_block);
        dropout.draw(causal, task.batch, head, block, key_block);
        differentiate(shape, scratch, causal, key_block, dropout, /*add_keys=*/g > 0 || !causal.diagonal,
                      query_gradients, /*add_queries=*/key_block > first, ahead);
      }
    }
  }
  unpack_key_gradients(shape, task, scratch, TaskHeads(gradient, shape.heads(), shape, task));
}

}  // namespace

#define GPT_ATTENTION_KERNELS(T, name)                                                                  \
  extern const AttentionKernels<T> name;                                                                \
  const AttentionKernels<T> name{scratch_floats<ForwardScratch<FactorOf<T>>>,                           \
                                 scratch_floats<BackwardScratch<FactorOf<T>>>, forward<T>, backward<T>, \
                                 finish_queries<T>};
GPT_ATTENTION_KERNELS(float, attention_float32)
GPT_ATTENTION_KERNELS(c10::BFloat16, attention_bfloat16)

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
