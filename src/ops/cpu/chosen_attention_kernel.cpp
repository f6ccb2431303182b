#include <c10/util/BFloat16.h>

#include <algorithm>

#include "attention_kernel.h"
#include "attention_tile.h"
#include "block_choice.h"

// Attention to blocks that each query chooses. Queries of a block choose different ones, so the work goes by blocks of keys: the queries
// that see one, wherever they are, are gathered in tiles of 64, and what they take from it joins what they have already. Nothing is done
// for a block that a query does not see. For each query the blocks come in the order of their positions, behind its own, whoever else is
// in its tiles; so a query's results follow from it and the keys that it sees alone, to the bit.

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

// Memory for 32-bit numbers.
int32_t* take_numbers(Arena& arena, int64_t count) { return reinterpret_cast<int32_t*>(arena.take(count)); }

// The queries of a head that see a block of kBlock keys but are not among its own, in the order of their positions.
class Readers {
 public:
  Readers(const AttentionShape& shape, Arena& arena)
      : shape_(shape),
        ends_(take_numbers(arena, shape.choice_blocks() + 1)),
        choosers_(take_numbers(arena, shape.T * shape.top_blocks)),
        readers_(take_numbers(arena, shape.T)) {}

  // From what the queries of every `parts`-th block from `part` on chose.
  void sort(const int32_t* chosen, int64_t part, int64_t parts) {
    part_ = part, parts_ = parts;
    const auto for_each_choice = [&](const auto& work) {
      for (int64_t block = part; block < shape_.blocks(); block += parts) {
        const int64_t position = block * kBlock, end = position + block_rows(shape_, block);
        for (int64_t query = position; query < end; ++query)
          for (int64_t i = 0; i < shape_.top_blocks; ++i)
            if (const int32_t number = chosen[query * shape_.top_blocks + i]; number >= 0) work(query, number);
      }
    };
    const int64_t blocks = shape_.choice_blocks();
    std::fill(ends_, ends_ + blocks + 1, 0);
    for_each_choice([&](int64_t, int32_t number) { ++ends_[number + 1]; });
    for (int64_t i = 1; i <= blocks; ++i) ends_[i] += ends_[i - 1];
    for_each_choice([&](int64_t query, int32_t number) { choosers_[ends_[number]++] = static_cast<int32_t>(query); });
  }

  // Calls work(positions, queries) with up to kBlock readers of a block at a time.
  template <class Work>
  void for_each_tile(int64_t key_block, const Work& work) {
    const int64_t blocks_of_choice = shape_.choice_block / kBlock, number = key_block / blocks_of_choice,
                  end_of_own = std::min((number + 1) * blocks_of_choice, shape_.blocks());
    int32_t* end = readers_;
    for (int64_t block = key_block + 1; block < end_of_own; ++block) {
      if (block % parts_ != part_) continue;
      for (int64_t i = 0; i < block_rows(shape_, block); ++i) *end++ = static_cast<int32_t>(block * kBlock + i);
    }
    end = std::copy(choosers_ + (number == 0 ? 0 : ends_[number - 1]), choosers_ + ends_[number], end);
    for (const int32_t* tile = readers_; tile < end; tile += kBlock) work(tile, std::min<int64_t>(kBlock, end - tile));
  }

 private:
  const AttentionShape& shape_;
  int64_t part_ = 0, parts_ = 1;
  int32_t* ends_;      // of the lists of the blocks in `choosers_`
  int32_t* choosers_;  // of each block of choice
  int32_t* readers_;   // of a block of keys
};

// Rows of a matrix, one after the other, and zeros up to a multiple of kPackedRows rows.
void gather(Matrix from, const int32_t* positions, int64_t rows, Matrix to) {
  for (int64_t i = 0; i < rows; ++i) std::copy_n(from.row(positions[i]), to.stride, to.row(i));
  std::fill(to.row(rows), to.row(round_up(rows, kPackedRows)), 0.0f);
}

void gather(const float* from, const int32_t* positions, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[positions[i]];
}

// A row for each position of a head, in whole blocks.
Matrix all_rows(const AttentionShape& shape, Arena& arena) {
  return arena.matrix(shape.blocks() * kBlock, shape.padded_width());
}

Arena behind(float* memory, int64_t floats) { return Arena(memory ? memory + floats : nullptr); }

template <class E>
struct ChosenForwardScratch {
  ForwardScratch<E> tile;
  Arena arena;
  Matrix queries, sums;  // (blocks * kBlock, padded width): of a head
  float *maximum, *sum;  // (blocks * kBlock)
  Matrix means;          // (choice blocks, padded width)
  ChoiceScratch choice;
  Readers readers;
  int64_t floats;

  ChosenForwardScratch(const AttentionShape& shape, float* memory)
      : tile(shape, Arena(memory)),
        arena(behind(memory, tile.floats)),
        queries(all_rows(shape, arena)),
        sums(all_rows(shape, arena)),
        maximum(arena.take(shape.blocks() * kBlock)),
        sum(arena.take(shape.blocks() * kBlock)),
        means(arena.matrix(shape.choice_blocks(), shape.padded_width())),
        choice(shape.choice_blocks(), shape.top_blocks, shape.padded_width(), arena),
        readers(shape, arena),
        floats(tile.floats + arena.used()) {}
};

// Adds a block's keys to the mean of its block of choice, which is their sum until that block is complete.
template <class T>
void add_to_means(const AttentionShape& shape, int64_t block, int64_t rows, Matrix keys, Matrix means) {
  const int64_t of_choice = shape.choice_block / kBlock;
  float* const mean = means.row(block / of_choice);
  if (block % of_choice == 0) std::fill(mean, mean + means.stride, 0.0f);
  add_stored<T>(keys.data, keys.stride, rows, shape.D, mean);
  if ((block + 1) % of_choice == 0) divide(mean, shape.choice_block, shape.D);
}

// The blocks that a block of queries chooses.
template <class T>
void choose(const AttentionShape& shape, int64_t block, Head<const T> queries, Matrix means,
            const ChoiceScratch& scratch, int32_t* chosen) {
  const int64_t position = block * kBlock, rows = block_rows(shape, block), earlier = position / shape.choice_block,
                top = shape.top_blocks;
  if (earlier <= top) return ChoiceScratch::choose_all(earlier, rows, top, chosen);
  pack(queries, rows, shape, 1, position, scratch.queries);
  if constexpr (!std::is_same_v<T, float>) {
    float* const values = scratch.queries.data;
    for (int64_t i = 0; i < rows * scratch.queries.stride; ++i)
      values[i] = static_cast<float>(static_cast<T>(values[i]));
  }
  scratch.weigh(means, earlier, rows, shape.D);
  scratch.choose(earlier, rows, top, chosen);
}

// What a block of queries takes from its own keys.
template <class E>
void attend_to_own(const AttentionShape& shape, const AttentionTask& task, int64_t head, int64_t block,
                   const ChosenForwardScratch<E>& scratch, const Dropout& dropout, Ahead& ahead) {
  const int64_t position = block * kBlock, rows = block_rows(shape, block), width = shape.padded_width();
  const ForwardScratch<E>& tile = scratch.tile;
  const FirstKeys first_keys(shape, task.batch, block);
  const Causal causal(shape, first_keys, block, block);
  int32_t positions[kBlock];
  for (int64_t i = 0; i < rows; ++i) positions[i] = static_cast<int32_t>(position + i);
  dropout.draw(positions, rows, task.batch, head, block, tile.scores);
  as_columns(Matrix{scratch.queries.row(position), width}, round_up(rows, kColumns), width, tile.query_rows,
             tile.queries);
  std::fill(tile.running.maximum, tile.running.maximum + kBlock, kLowestScore);
  attend(shape, tile, causal, block, dropout, /*first=*/true, Matrix{scratch.sums.row(position), width}, ahead);
  std::copy_n(tile.running.maximum, kBlock, scratch.maximum + position);
  std::copy_n(tile.running.sum, kBlock, scratch.sum + position);
}

// What queries anywhere behind a block take from it.
template <class E>
void attend_to_chosen(const AttentionShape& shape, const Causal& causal, const int32_t* positions, int64_t key_block,
                      const ChosenForwardScratch<E>& scratch, const Dropout& dropout, Ahead& ahead) {
  const int64_t width = shape.padded_width(), count = causal.queries;
  const ForwardScratch<E>& tile = scratch.tile;
  gather(scratch.queries, positions, count, tile.sums);
  as_columns(tile.sums, round_up(count, kColumns), width, tile.query_rows, tile.queries);
  gather(scratch.maximum, positions, count, tile.running.maximum);
  gather(scratch.sum, positions, count, tile.running.sum);
  weigh(shape, tile, causal, key_block, dropout, /*first=*/false, ahead);
  multiply<true>(count, tile.weights, tile.values[key_block], tile.sums, /*add=*/false, causal.over_keys(), ahead);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t position = positions[i];
    scratch.maximum[position] = tile.running.maximum[i];
    scratch.sum[position] = tile.running.sum[i];
    const FloatVector correction(tile.running.correction[i]);
    float* const sums = scratch.sums.row(position);
    for (int64_t d = 0; d < width; d += kLanes) {
      const FloatVector more = FloatVector::loadu(tile.sums.row(i) + d);
      at::vec::fmadd(correction, FloatVector::loadu(sums + d), more).store(sums + d);
    }
  }
}

template <class T>
void forward(const AttentionShape& shape, const AttentionTask& task, const T* qkv, T* output, float* log_sum,
             float* memory) {
  const TileScope tiles;
  ChosenForwardScratch<FactorOf<T>> scratch(shape, memory);
  const Dropout dropout(shape, scratch.tile.factors);
  const TaskHeads packed(qkv, shape.heads(), shape, task);
  const TaskHeads to(output, shape.H, shape, task);
  const int64_t width = shape.padded_width();
  pack_keys_and_values(shape, packed, scratch.tile, [&](int64_t block, int64_t rows, Matrix keys) {
    add_to_means<T>(shape, block, rows, keys, scratch.means);
  });
  Ahead ahead;  // of nothing
  const FirstKeys all(shape, task.batch, 0);
  for (int64_t g = 0; g < shape.group(); ++g) {
    const int64_t head = task.kv_head * shape.group() + g;
    for (int64_t block = task.part; block < shape.blocks(); block += task.parts) {
      const int64_t position = block * kBlock, rows = block_rows(shape, block);
      const Head<const T> queries = packed.query(g, position);
      choose(shape, block, queries, scratch.means, scratch.choice, shape.chosen_by(task.batch, head, position));
      pack(queries, rows, shape, score_factor(shape), position, Matrix{scratch.queries.row(position), width});
      attend_to_own(shape, task, head, block, scratch, dropout, ahead);
    }
    scratch.readers.sort(shape.chosen_by(task.batch, head, 0), task.part, task.parts);
    for (int64_t key_block = 0; key_block < shape.blocks(); ++key_block) {
      scratch.readers.for_each_tile(key_block, [&](const int32_t* positions, int64_t queries) {
        dropout.draw(positions, queries, task.batch, head, key_block, scratch.tile.scores);
        attend_to_chosen(shape, Causal(shape, all, queries), positions, key_block, scratch, dropout, ahead);
      });
    }
    for (int64_t block = task.part; block < shape.blocks(); block += task.parts) {
      const int64_t position = block * kBlock, rows = block_rows(shape, block);
      float *const maximum = scratch.maximum + position, *const sum = scratch.sum + position;
      finish(maximum, sum, rows);
      std::copy_n(maximum, rows, log_sum + (task.batch * shape.H + head) * shape.T + position);
      const Head<T> y = to.query(g, position);
      convert(scratch.sums.row(position), width, rows, shape.D, [&](int64_t i) { return sum[i]; }, y.data, y.stride);
    }
  }
}

template <class E>
struct ChosenBackwardScratch {
  BackwardScratch<E> tile;
  Arena arena;
  Matrix queries, output_gradients;  // (blocks * kBlock, padded width): of a head
  float* deltas;                     // (blocks * kBlock): as those of the tile
  Matrix query_gradients;            // (kBlock, padded width): of a tile
  Readers readers;
  int64_t floats;

  ChosenBackwardScratch(const AttentionShape& shape, float* memory)
      : tile(shape, Arena(memory)),
        arena(behind(memory, tile.floats)),
        queries(all_rows(shape, arena)),
        output_gradients(all_rows(shape, arena)),
        deltas(arena.take(shape.blocks() * kBlock)),
        query_gradients(arena.matrix(kBlock, shape.padded_width())),
        readers(shape, arena),
        floats(tile.floats + arena.used()) {}
};

// The gradients that some queries and a block of keys give each other.
template <class E>
void differentiate_gathered(const AttentionShape& shape, const ChosenBackwardScratch<E>& scratch, const Causal& causal,
                            const int32_t* positions, int64_t key_block, const float* log_sums, const Dropout& dropout,
                            bool add_keys, Matrix query_sums, Ahead& ahead) {
  const BackwardScratch<E>& tile = scratch.tile;
  const int64_t count = causal.queries;
  gather(scratch.queries, positions, count, tile.packed_queries);
  gather(scratch.output_gradients, positions, count, tile.packed_output_gradients);
  arrange_queries(tile, count);
  gather(log_sums, positions, count, tile.log_sums);
  gather(scratch.deltas, positions, count, tile.deltas);
  differentiate(shape, tile, causal, key_block, dropout, add_keys, scratch.query_gradients, /*add_queries=*/false,
                ahead);
  for (int64_t i = 0; i < count; ++i) {
    float* const sums = query_sums.row(positions[i]);
    const float* const more = scratch.query_gradients.row(i);
    for (int64_t d = 0; d < query_sums.stride; ++d) sums[d] += more[d];
  }
}

template <class T>
void backward(const AttentionShape& shape, const AttentionTask& task, const T* qkv, const T* output,
              const float* log_sum, const T* output_gradient, T* gradient, float* query_sums, float* memory) {
  const TileScope tiles;
  ChosenBackwardScratch<FactorOf<T>> scratch(shape, memory);
  const Dropout dropout(shape, scratch.tile.factors);
  const TaskHeads packed(qkv, shape.heads(), shape, task);
  const TaskHeads y(output, shape.H, shape, task), dy(output_gradient, shape.H, shape, task);
  const int64_t width = shape.padded_width(), all_rows = shape.blocks() * kBlock;
  pack_keys(shape, task, packed, scratch.tile);
  std::fill_n(query_sums, shape.query_sums(), 0.0f);
  Ahead ahead;  // of nothing
  const FirstKeys all(shape, task.batch, 0);
  for (int64_t g = 0; g < shape.group(); ++g) {
    const int64_t head = task.kv_head * shape.group() + g;
    const float* const log_sums = log_sum + (task.batch * shape.H + head) * shape.T;
    for (int64_t block = task.part; block < shape.blocks(); ++block) {  // of earlier queries no key is here
      const int64_t position = block * kBlock, rows = block_rows(shape, block);
      const Head<const T> gradients = dy.query(g, position);
      dots(y.query(g, position), gradients, rows, shape.D, Matrix{scratch.tile.weights.data, kColumns},
           scratch.tile.score_gradients, scratch.deltas + position);
      pack(packed.query(g, position), rows, shape, score_factor(shape), position,
           Matrix{scratch.queries.row(position), width});
      pack(gradients, rows, shape, 1, -1, Matrix{scratch.output_gradients.row(position), width});
    }
    scratch.readers.sort(shape.chosen_by(task.batch, head, 0), 0, 1);
    const Matrix sums{query_sums + g * all_rows * width, width};
    for (int64_t block = task.part; block < shape.blocks(); block += task.parts) {
      const auto step = [&](const int32_t* positions, const Causal& causal, bool add_keys) {
        dropout.draw(positions, causal.queries, task.batch, head, block, scratch.tile.weights);
        differentiate_gathered(shape, scratch, causal, positions, block, log_sums, dropout, add_keys, sums, ahead);
      };
      const FirstKeys first_keys(shape, task.batch, block);
      int32_t own[kBlock];
      for (int64_t i = 0; i < block_rows(shape, block); ++i) own[i] = static_cast<int32_t>(block * kBlock + i);
      step(own, Causal(shape, first_keys, block, block), /*add_keys=*/g > 0);
      scratch.readers.for_each_tile(block, [&](const int32_t* positions, int64_t queries) {
        step(positions, Causal(shape, all, queries), /*add_keys=*/true);
      });
    }
  }
  unpack_key_gradients(shape, task, scratch.tile, TaskHeads(gradient, shape.heads(), shape, task));
}

template <class Scratch>
int64_t floats_of(const AttentionShape& shape) {
  return Scratch(shape, nullptr).floats;
}

}  // namespace

#define GPT_CHOSEN_ATTENTION_KERNELS(T, name)                                                            \
  extern const AttentionKernels<T> name;                                                                 \
  const AttentionKernels<T> name{floats_of<ChosenForwardScratch<FactorOf<T>>>,                           \
                                 floats_of<ChosenBackwardScratch<FactorOf<T>>>, forward<T>, backward<T>, \
                                 finish_queries<T>};
GPT_CHOSEN_ATTENTION_KERNELS(float, chosen_attention_float32)
GPT_CHOSEN_ATTENTION_KERNELS(c10::BFloat16, chosen_attention_bfloat16)

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
