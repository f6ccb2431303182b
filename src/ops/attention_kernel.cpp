#include "attention_kernel.h"

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "matrix_tile.h"
#include "packed_heads.h"
#include "philox.h"
#include "vector_math.h"

// Everything is computed in float32 in blocks of 64 x 64 scores that stay in the cache; 16-bit values are converted as they
// are packed, which is little work beside the products. (On processors with 16-bit dot products they could be multiplied as
// they are: that is not done yet.) Products skip what causality hides, to within a tile.
//
// Scores are in units of log 2: the factor 1 / (sqrt(D) ln 2) is multiplied into the packed queries.

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

constexpr int64_t kBlock = AttentionShape::kBlock;
// Rows of scores have room for what a tile on the diagonal computes beyond its own rows.
constexpr int64_t kScoreStride = kBlock + kColumns;
constexpr float kLn2 = 0.69314718f;

float score_factor(const AttentionShape& shape) { return 1.0f / (std::sqrt(static_cast<float>(shape.D)) * kLn2); }

int64_t block_rows(const AttentionShape& shape, int64_t block) { return std::min(kBlock, shape.T - block * kBlock); }

// What products with scores need: on the diagonal, query i sees the keys up to i.
struct Causal {
  bool diagonal;
  int64_t queries, width;  // of this block; padded, of a head

  // Scores of queries, from vectors of D.
  auto scores(int64_t D) const {
    return [this, D](int64_t, int64_t last) { return Extent{diagonal ? round_up(last, kColumns) : kBlock, 0, D}; };
  }
  // Sums over the keys that queries see.
  auto over_keys() const {
    return [this](int64_t, int64_t last) { return Extent{width, 0, diagonal ? last : kBlock}; };
  }
  // Sums over the queries that see keys.
  auto over_queries() const {
    return [this](int64_t first, int64_t) { return Extent{width, diagonal ? first : 0, queries}; };
  }
  // Columns that a query sees, and the end of those that the products read.
  int64_t visible(int64_t query) const { return diagonal ? query + 1 : kBlock; }
  int64_t end(int64_t query) const { return diagonal ? round_up(query + kTileRows, kColumns) : kBlock; }
};

FloatVector before(int64_t column, int64_t visible) {
  return FloatVector::arange(static_cast<float>(column), 1.0f) < FloatVector(static_cast<float>(visible));
}

struct Dropout {
  DropoutMask mask;
  uint32_t matrix;

  Dropout(const AttentionShape& shape, int64_t batch, int64_t head)
      : mask(shape.dropout), matrix(static_cast<uint32_t>(batch * shape.H + head)) {}
  explicit operator bool() const { return static_cast<bool>(mask); }
  // For the scores of a query with a block of keys.
  void factors(int64_t query, int64_t key_block, float* result) const {
    dropout_factors(mask, static_cast<uint32_t>(key_block), static_cast<uint32_t>(query), matrix, result);
  }
};

// Per query: the largest score so far, the sum of exponentials relative to it, and the factor by which the last block of keys
// made what was summed before smaller.
struct RunningSums {
  float *maximum, *sum, *correction;
};

// Turns a row of scores into exponentials, in place.
void exponentials(float* row, const Causal& causal, int64_t query, const RunningSums& running) {
  const int64_t visible = causal.visible(query), end = causal.end(query);
  FloatVector largest(running.maximum[query]);
  for (int64_t j = visible / kLanes * kLanes; j < end; j += kLanes) {
    const FloatVector masked = FloatVector::blendv(FloatVector(-std::numeric_limits<float>::infinity()),
                                                   FloatVector::loadu(row + j), before(j, visible));
    masked.store(row + j);
  }
  for (int64_t j = 0; j < visible; j += kLanes) largest = at::vec::clamp_min(largest, FloatVector::loadu(row + j));
  const float maximum = maximum_of(largest);
  FloatVector sum(0.0f);
  for (int64_t j = 0; j < end; j += kLanes) {
    const FloatVector e = exp2(FloatVector::loadu(row + j) - FloatVector(maximum));
    sum = sum + e;
    e.store(row + j);
  }
  running.correction[query] = running.maximum[query] - maximum;
  running.maximum[query] = maximum;
  running.sum[query] = sum_of(sum);
}

void multiply_row(float* row, const float* factors, int64_t count) {
  for (int64_t j = 0; j < count; j += kLanes) {
    (FloatVector::loadu(row + j) * FloatVector::loadu(factors + j)).store(row + j);
  }
}

void scale_rows(Matrix rows, int64_t count, const float* factors) {
  for (int64_t i = 0; i < count; ++i) {
    float* row = rows.data + i * rows.stride;
    for (int64_t d = 0; d < rows.stride; d += kLanes)
      (FloatVector::loadu(row + d) * FloatVector(factors[i])).store(row + d);
  }
}

struct ForwardScratch {
  Matrix keys;           // (blocks * padded width, kBlock): each block transposed
  Matrix values;         // (blocks * kBlock, padded width)
  Matrix queries, sums;  // (kBlock, padded width)
  Matrix scores;         // (kBlock, kScoreStride)
  RunningSums running;   // of the block of queries
  float *previous, *factors;
  int64_t floats;

  ForwardScratch(const AttentionShape& shape, Arena arena) {
    const int64_t width = shape.padded_width();
    keys = arena.matrix(shape.blocks() * width, kBlock);
    values = arena.matrix(shape.blocks() * kBlock, width);
    queries = arena.matrix(kBlock, width);
    sums = arena.matrix(kBlock, width);
    scores = arena.matrix(kBlock, kScoreStride);
    running = {arena.take(kBlock), arena.take(kBlock), arena.take(kBlock)};
    previous = arena.take(kBlock);
    factors = arena.take(kScoreStride);
    floats = arena.used();
  }
  Matrix key_block(int64_t block) const { return {keys.data + block * values.stride * kBlock, kBlock}; }
  Matrix value_block(int64_t block) const { return {values.data + block * kBlock * values.stride, values.stride}; }
};

// Adds what the queries take from one block of keys and values.
void attend(const AttentionShape& shape, const ForwardScratch& scratch, int64_t query_block, int64_t key_block,
            const Dropout& dropout, Ahead& ahead) {
  const int64_t queries = block_rows(shape, query_block);
  const Causal causal{query_block == key_block, queries, shape.padded_width()};
  multiply<false>(queries, scratch.queries, scratch.key_block(key_block), scratch.scores, /*add=*/false,
                  causal.scores(shape.D), ahead);
  const RunningSums& running = scratch.running;
  std::copy(running.sum, running.sum + queries, scratch.previous);
  for (int64_t i = 0; i < queries; ++i) {
    float* row = scratch.scores.data + i * kScoreStride;
    exponentials(row, causal, i, running);
    if (!dropout) continue;
    dropout.factors(query_block * kBlock + i, key_block, scratch.factors);
    multiply_row(row, scratch.factors, causal.end(i));
  }
  if (key_block > 0) {
    for (int64_t i = 0; i < kBlock; i += kLanes) {
      const FloatVector correction = exp2(FloatVector::loadu(running.correction + i));
      correction.store(running.correction + i);
      at::vec::fmadd(correction, FloatVector::loadu(scratch.previous + i), FloatVector::loadu(running.sum + i))
          .store(running.sum + i);
    }
    scale_rows(scratch.sums, queries, running.correction);
  }
  multiply<false>(queries, scratch.scores, scratch.value_block(key_block), scratch.sums, /*add=*/key_block > 0,
                  causal.over_keys(), ahead);
}

template <class T>
void forward(const AttentionShape& shape, const AttentionTask& task, const T* qkv, T* output, float* log_sum,
             float* memory) {
  const ForwardScratch scratch(shape, Arena(memory));
  const int64_t key_head = shape.H + task.kv_head, value_head = key_head + shape.KV;
  for (int64_t block = 0; block < shape.blocks(); ++block) {
    const int64_t position = block * kBlock, rows = block_rows(shape, block);
    pack(Head<const T>(qkv, shape, shape.heads(), task.batch, key_head, position), rows, shape, 1, position,
         scratch.sums);
    transpose(round_up(rows, kColumns), shape.padded_width(), scratch.sums, scratch.key_block(block));
    pack(Head<const T>(qkv, shape, shape.heads(), task.batch, value_head, position), rows, shape, 1, -1,
         scratch.value_block(block));
  }
  Ahead ahead;
  if (const auto next = following(shape, task)) {
    for (const int64_t head :
         {next->kv_head * shape.group(), shape.H + next->kv_head, shape.H + shape.KV + next->kv_head}) {
      ahead.add(Head<const T>(qkv, shape, shape.heads(), next->batch, head, 0), shape);
    }
    ahead.add(Head<T>(output, shape, shape.H, next->batch, next->kv_head * shape.group(), 0), shape);
  }
  const RunningSums& running = scratch.running;
  for (int64_t head = task.kv_head * shape.group(); head < (task.kv_head + 1) * shape.group(); ++head) {
    const Dropout dropout(shape, task.batch, head);
    for (int64_t block = task.part; block < shape.blocks(); block += task.parts) {
      const int64_t position = block * kBlock, rows = block_rows(shape, block);
      pack(Head<const T>(qkv, shape, shape.heads(), task.batch, head, position), rows, shape, score_factor(shape),
           position, scratch.queries);
      std::fill(running.maximum, running.maximum + kBlock, -std::numeric_limits<float>::infinity());
      for (int64_t key_block = 0; key_block <= block; ++key_block)
        attend(shape, scratch, block, key_block, dropout, ahead);
      float* log_sums = log_sum + (task.batch * shape.H + head) * shape.T + position;
      const Head<T> to(output, shape, shape.H, task.batch, head, position);
      for (int64_t i = 0; i < rows; ++i) {
        log_sums[i] = running.maximum[i] + std::log2(running.sum[i]);
        convert(scratch.sums.data + i * scratch.sums.stride, shape.D, 1 / running.sum[i], to.data + i * to.stride);
      }
    }
  }
}

struct BackwardScratch {
  Matrix keys, key_gradients, value_gradients;  // (kBlock, padded width)
  Matrix keys_transposed, values_transposed;    // (padded width, kBlock)
  Matrix queries, output_gradients;             // (kBlock, padded width)
  Matrix weights, score_gradients;              // (kBlock, kScoreStride)
  float* deltas;                                // (group, blocks * kBlock): sums over D of output times its gradient
  float* factors;
  int64_t floats;

  BackwardScratch(const AttentionShape& shape, Arena arena) {
    const int64_t width = shape.padded_width();
    for (Matrix* matrix : {&keys, &key_gradients, &value_gradients, &queries, &output_gradients}) {
      *matrix = arena.matrix(kBlock, width);
    }
    for (Matrix* matrix : {&keys_transposed, &values_transposed}) *matrix = arena.matrix(width, kBlock);
    for (Matrix* matrix : {&weights, &score_gradients}) *matrix = arena.matrix(kBlock, kScoreStride);
    deltas = arena.take(shape.group() * shape.blocks() * kBlock);
    factors = arena.take(kScoreStride);
    floats = arena.used();
  }
};

// Turns a row of scores into weights, and the gradients of the weights into those of the scores. factors: of dropout, or null.
template <bool kDrops>
void differentiate(float* scores, float* gradients, const Causal& causal, int64_t query, float log_sum, float delta,
                   const float* factors) {
  const int64_t visible = causal.visible(query), end = causal.end(query);
  const auto step = [&](int64_t j, auto is_masked) {
    FloatVector weight = exp2(FloatVector::loadu(scores + j) - FloatVector(log_sum));
    FloatVector gradient = FloatVector::loadu(gradients + j), kept = weight;
    if constexpr (kDrops) {
      const FloatVector factor = FloatVector::loadu(factors + j);
      gradient = gradient * factor;
      kept = weight * factor;
    }
    gradient = weight * (gradient - FloatVector(delta));
    if constexpr (is_masked) {
      const FloatVector mask = before(j, visible), zero(0.0f);
      kept = FloatVector::blendv(zero, kept, mask);
      gradient = FloatVector::blendv(zero, gradient, mask);
    }
    kept.store(scores + j);
    gradient.store(gradients + j);
  };
  int64_t j = 0;
  for (; j + kLanes <= visible; j += kLanes) step(j, std::false_type());
  for (; j < end; j += kLanes) step(j, std::true_type());
}

// The gradients that a block of queries and a block of keys give each other. The queries' and the output's gradients and the
// block of keys and values are packed.
void differentiate_block(const AttentionShape& shape, const BackwardScratch& scratch, int64_t query_block,
                         int64_t key_block, const float* log_sums, const float* deltas, const Dropout& dropout,
                         Matrix query_sums, Ahead& ahead) {
  const int64_t queries = block_rows(shape, query_block), keys = block_rows(shape, key_block);
  const Causal causal{query_block == key_block, queries, shape.padded_width()};
  const Matrix &weights = scratch.weights, &gradients = scratch.score_gradients;
  multiply<false>(queries, scratch.queries, scratch.keys_transposed, weights, /*add=*/false, causal.scores(shape.D),
                  ahead);
  multiply<false>(queries, scratch.output_gradients, scratch.values_transposed, gradients, /*add=*/false,
                  causal.scores(shape.D), ahead);
  for (int64_t i = 0; i < queries; ++i) {
    float *row = weights.data + i * kScoreStride, *gradient = gradients.data + i * kScoreStride;
    if (dropout) {
      dropout.factors(query_block * kBlock + i, key_block, scratch.factors);
      differentiate<true>(row, gradient, causal, i, log_sums[i], deltas[i], scratch.factors);
    } else {
      differentiate<false>(row, gradient, causal, i, log_sums[i], deltas[i], nullptr);
    }
  }
  multiply<true>(keys, weights, scratch.output_gradients, scratch.value_gradients, /*add=*/true, causal.over_queries(),
                 ahead);
  multiply<true>(keys, gradients, scratch.queries, scratch.key_gradients, /*add=*/true, causal.over_queries(), ahead);
  multiply<false>(queries, gradients, scratch.keys, query_sums, /*add=*/true, causal.over_keys(), ahead);
}

template <class T>
void backward(const AttentionShape& shape, const AttentionTask& task, const T* qkv, const T* output,
              const float* log_sum, const T* output_gradient, T* gradient, float* query_sums, float* memory) {
  const BackwardScratch scratch(shape, Arena(memory));
  const int64_t width = shape.padded_width(), first_head = task.kv_head * shape.group();
  const int64_t key_head = shape.H + task.kv_head, value_head = key_head + shape.KV;
  const auto packed = [&](int64_t head, int64_t position) {
    return Head<const T>(qkv, shape, shape.heads(), task.batch, head, position);
  };
  Ahead ahead;
  if (const auto next = following(shape, task)) {
    const int64_t next_head = next->kv_head * shape.group();
    for (const int64_t head : {next_head, shape.H + next->kv_head, shape.H + shape.KV + next->kv_head}) {
      ahead.add(Head<const T>(qkv, shape, shape.heads(), next->batch, head, 0), shape);
      ahead.add(Head<T>(gradient, shape, shape.heads(), next->batch, head, 0), shape);
    }
    ahead.add(Head<const T>(output, shape, shape.H, next->batch, next_head, 0), shape);
    ahead.add(Head<const T>(output_gradient, shape, shape.H, next->batch, next_head, 0), shape);
  }
  std::fill(query_sums, query_sums + shape.group() * shape.T * width, 0.0f);
  for (int64_t g = 0; g < shape.group(); ++g) {
    const Head<const T> y(output, shape, shape.H, task.batch, first_head + g, 0),
        dy(output_gradient, shape, shape.H, task.batch, first_head + g, 0);
    for (int64_t i = 0; i < shape.T; ++i) {
      scratch.deltas[g * shape.T + i] = dot(y.data + i * y.stride, dy.data + i * dy.stride, shape.D);
    }
  }
  for (int64_t key_block = task.part; key_block < shape.blocks(); key_block += task.parts) {
    const int64_t key_position = key_block * kBlock, keys = block_rows(shape, key_block);
    pack(packed(value_head, key_position), keys, shape, 1, -1, scratch.keys);
    transpose(round_up(keys, kColumns), width, scratch.keys, scratch.values_transposed);
    pack(packed(key_head, key_position), keys, shape, 1, key_position, scratch.keys);
    transpose(round_up(keys, kColumns), width, scratch.keys, scratch.keys_transposed);
    std::fill(scratch.key_gradients.data, scratch.key_gradients.data + kBlock * width, 0.0f);
    std::fill(scratch.value_gradients.data, scratch.value_gradients.data + kBlock * width, 0.0f);
    for (int64_t g = 0; g < shape.group(); ++g) {
      const int64_t head = first_head + g;
      const Dropout dropout(shape, task.batch, head);
      for (int64_t block = key_block; block < shape.blocks(); ++block) {
        const int64_t position = block * kBlock, rows = block_rows(shape, block);
        pack(packed(head, position), rows, shape, score_factor(shape), position, scratch.queries);
        pack(Head<const T>(output_gradient, shape, shape.H, task.batch, head, position), rows, shape, 1, -1,
             scratch.output_gradients);
        differentiate_block(shape, scratch, block, key_block,
                            log_sum + (task.batch * shape.H + head) * shape.T + position,
                            scratch.deltas + g * shape.T + position, dropout,
                            {query_sums + (g * shape.T + position) * width, width}, ahead);
      }
    }
    // The packed queries have the factor of the scores in units of log 2, the gradients of the scores are without it.
    const auto target = [&](int64_t head) {
      return Head<T>(gradient, shape, shape.heads(), task.batch, head, key_position);
    };
    unpack(scratch.key_gradients, keys, shape, kLn2, key_position, target(key_head));
    unpack(scratch.value_gradients, keys, shape, 1, -1, target(value_head));
  }
}

template <class T>
void finish_queries(const AttentionShape& shape, const AttentionTask& task, float* query_sums, T* gradient) {
  const int64_t width = shape.padded_width(), count = shape.group() * shape.T * width;
  for (int64_t part = 1; part < task.parts; ++part) {
    const float* more = query_sums + part * count;
    for (int64_t i = 0; i < count; ++i) query_sums[i] += more[i];
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape.D));
  for (int64_t g = 0; g < shape.group(); ++g) {
    unpack(Matrix{query_sums + g * shape.T * width, width}, shape.T, shape, scale, 0,
           Head<T>(gradient, shape, shape.heads(), task.batch, task.kv_head * shape.group() + g, 0));
  }
}

template <class Scratch>
int64_t scratch_floats(const AttentionShape& shape) {
  return Scratch(shape, Arena(nullptr)).floats;
}

}  // namespace

#define GPT_ATTENTION_KERNELS(T, name)                                                                        \
  extern const AttentionKernels<T> name;                                                                      \
  const AttentionKernels<T> name{scratch_floats<ForwardScratch>, scratch_floats<BackwardScratch>, forward<T>, \
                                 backward<T>, finish_queries<T>};
GPT_ATTENTION_KERNELS(float, attention_float32)
GPT_ATTENTION_KERNELS(c10::BFloat16, attention_bfloat16)

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
