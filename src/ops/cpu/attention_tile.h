// What one block of queries and one block of keys compute in both passes of the CPU's attention, and the scratch memory for it. For kernels
// that cmake/CpuKernels.cmake compiles.
//
// Scores lie transposed, with a row for each key, so that a vector holds scores of neighbouring queries: their maxima and sums
// are those of vectors, and nothing is ever summed inside one. Only queries, and the gradient of the output, are transposed for
// that. Scores are in units of log 2: the factor 1 / (sqrt(D) ln 2) is multiplied into the packed queries.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "gpt/simd/matrix_tile.h"
#include "gpt/simd/philox.h"
#include "gpt/simd/vector_math.h"
#include "packed_heads.h"
#include "visible_scores.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {

inline constexpr int64_t kBlock = AttentionShape::kBlock;
inline constexpr float kLn2 = 0.69314718f, kInfinity = std::numeric_limits<float>::infinity();

// The score of a query that has not seen a key: not -infinity, so that the difference from another score is a number.
inline constexpr float kLowestScore = std::numeric_limits<float>::lowest();

inline float score_factor(const AttentionShape& shape) {
  return 1.0f / (std::sqrt(static_cast<float>(shape.D)) * kLn2);
}

// What the weights (keys, queries) of a block are multiplied by; null data: nothing.
class Dropout {
 public:
  Dropout(const AttentionShape& shape, Matrix factors) : mask_(shape.dropout), factors_(factors) {
    if (!mask_) factors_.data = nullptr;
  }
  explicit operator bool() const { return factors_.data; }
  const float* factors(int64_t key) const { return factors_.row(key); }
  // Draws the factors of a head in the micro-batch.
  void draw(const Causal& causal, int64_t batch, int64_t head, int64_t query_block, int64_t key_block) const {
    if (!factors_.data) return;
    const int64_t number = mask_.number_of(batch, head);
    for (int64_t key = 0; key < causal.packed_keys(); ++key) {
      dropout_factors(mask_, static_cast<uint32_t>(query_block), static_cast<uint32_t>(key_block * kBlock + key),
                      static_cast<uint32_t>(number), factors_.row(key));
    }
  }
  // Draws those of queries at any positions, by places of their own: a row for each query. `rows` (kBlock, kBlock): scratch memory.
  void draw(const int32_t* positions, int64_t queries, int64_t batch, int64_t head, int64_t key_block,
            Matrix rows) const {
    if (!factors_.data) return;
    const int64_t number = mask_.number_of(batch, head);
    for (int64_t query = 0; query < queries; ++query) {
      dropout_factors(mask_, static_cast<uint32_t>(key_block), static_cast<uint32_t>(positions[query]),
                      static_cast<uint32_t>(number), rows.row(query));
    }
    transpose(round_up(queries, kColumns), kBlock, rows, factors_);
  }

 private:
  DropoutMask mask_;
  Matrix factors_;
};

// Rows of a head in blocks, each a matrix. kTerms: of as_terms().
template <class E, bool kTerms = false>
struct Blocks {
  MatrixOf<E> all;
  MatrixOf<E> operator[](int64_t block) const {
    return {all.row(block * kBlock / (kTerms ? Operand<E>::kValues : 1)), all.stride};
  }
};

// Per query: the largest score so far, the sum of exponentials relative to it, and the factor by which the last block of keys
// made what was summed before smaller.
struct RunningSums {
  float *maximum, *sum, *correction;
};

// E: what the factors of the products are made of. Of float32, several of these are the same.
template <class E>
struct ForwardScratch {
  static constexpr int64_t kTerms = kBlock / Operand<E>::kValues;  // terms that kBlock keys or queries make

  Blocks<E> keys;                   // (blocks * kBlock, width of a factor)
  Blocks<E, true> values;           // (blocks * kTerms, padded width)
  MatrixOf<E> query_rows, queries;  // (kBlock, width of a factor), its transpose
  Matrix sums;                      // (kBlock, padded width)
  Matrix scores, factors;           // (kBlock keys, kBlock queries)
  MatrixOf<E> weights;              // (kTerms, kBlock queries)
  RunningSums running;
  int64_t floats;

  ForwardScratch(const AttentionShape& shape, Arena arena) {
    const int64_t width = shape.padded_width(), factor = factor_columns<E>(width), rows = shape.blocks() * kBlock;
    keys.all = arena.elements<E>(rows, factor);
    values.all = arena.elements<E>(rows / Operand<E>::kValues, width);
    sums = arena.matrix(kBlock, width);
    query_rows = arena.factor<E>(sums, kBlock, factor);
    queries = arena.elements<E>(factor, kBlock);
    for (Matrix* matrix : {&scores, &factors}) *matrix = arena.matrix(kBlock, kBlock);
    weights = arena.factor<E>(scores, kTerms, kBlock);
    running = {arena.take(kBlock), arena.take(kBlock), arena.take(kBlock)};
    floats = arena.used();
  }
};

// The largest of `count` vectors and `largest`.
inline FloatVector largest_of(const float* vectors, int64_t stride, int64_t count, FloatVector largest) {
  const auto load = [&](int64_t i) { return FloatVector::loadu(vectors + i * stride); };
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const FloatVector low = at::vec::clamp_min(load(i), load(i + 1)),
                      high = at::vec::clamp_min(load(i + 2), load(i + 3));
    largest = at::vec::clamp_min(largest, at::vec::clamp_min(low, high));
  }
  for (; i < count; ++i) largest = at::vec::clamp_min(largest, load(i));
  return largest;
}

// Turns scores into exponentials, and what was summed before into sums relative to the new maxima.
template <class E>
void exponentials(const ForwardScratch<E>& scratch, const Causal& causal, const Dropout& dropout, bool first) {
  const RunningSums& running = scratch.running;
  for (int64_t query = 0; query < causal.queries; query += kLanes) {
    const int64_t end = causal.end(query);
    const int64_t begin = causal.begin(query), first_visible = causal.first_visible(query);
    const auto at = [&](int64_t key) { return scratch.scores.row(key) + query; };
    const auto hide = [&](int64_t key) {
      FloatVector::blendv(FloatVector(-kInfinity), FloatVector::loadu(at(key)), causal.sees(query, key)).store(at(key));
    };
    for (int64_t key = begin; key < first_visible; ++key) hide(key);
    for (int64_t key = std::max(first_visible, causal.visible(query)); key < end; ++key) hide(key);
    const FloatVector before = FloatVector::loadu(running.maximum + query);
    const FloatVector maximum = largest_of(at(begin), kBlock, end - begin, before);
    maximum.store(running.maximum + query);
    FloatVector sum(0.0f);
    for (int64_t key = begin; key < end; ++key) {
      FloatVector e = exp2(FloatVector::loadu(at(key)) - maximum);
      sum = sum + e;
      if (dropout) e = e * FloatVector::loadu(dropout.factors(key) + query);
      e.store(at(key));
    }
    if (!first) {
      const FloatVector correction = exp2(before - maximum);
      sum = at::vec::fmadd(correction, FloatVector::loadu(running.sum + query), sum);
      correction.store(running.correction + query);
    }
    sum.store(running.sum + query);
  }
}

// The weights of one block of keys, as factors, and with `first` false what was summed before as running.correction says.
template <class E>
void weigh(const AttentionShape& shape, const ForwardScratch<E>& scratch, const Causal& causal, int64_t key_block,
           const Dropout& dropout, bool first, Ahead& ahead) {
  multiply<false>(causal.keys, scratch.keys[key_block], scratch.queries, scratch.scores, /*add=*/false,
                  causal.scores(shape.D), ahead);
  exponentials(scratch, causal, dropout, first);
  as_terms(scratch.scores, causal.packed_keys(), round_up(causal.queries, kColumns), scratch.weights);
}

// Adds what the queries take from one block of keys and values.
template <class E>
void attend(const AttentionShape& shape, const ForwardScratch<E>& scratch, const Causal& causal, int64_t key_block,
            const Dropout& dropout, bool first, Matrix sums, Ahead& ahead) {
  weigh(shape, scratch, causal, key_block, dropout, first, ahead);
  if (!first) {
    const auto correction = [&](int64_t i) { return scratch.running.correction[i]; };
    convert(sums.data, sums.stride, causal.queries, sums.stride, correction, sums.data, sums.stride);
  }
  multiply<true>(causal.queries, scratch.weights, scratch.values[key_block], sums, /*add=*/!first, causal.over_keys(),
                 ahead);
}

// Turns the maxima and sums of rows into base 2 logarithms of the sums of exponentials, and into factors of the sums of values.
inline void finish(float* maximum, float* sum, int64_t rows) {
  for (int64_t i = 0; i < rows; i += kLanes) {
    const FloatVector all = FloatVector::loadu(sum + i);
    (FloatVector::loadu(maximum + i) + all.log2()).store(maximum + i);
    (FloatVector(1.0f) / all).store(sum + i);
  }
}

// Calls of_keys(block, rows, keys) with the rotated keys of each block.
template <class E, class T, class OfKeys>
void pack_keys_and_values(const AttentionShape& shape, const TaskHeads<const T>& packed,
                          const ForwardScratch<E>& scratch, const OfKeys& of_keys) {
  const int64_t width = shape.padded_width();
  for (int64_t block = 0; block < shape.blocks(); ++block) {
    const int64_t position = block * kBlock, rows = block_rows(shape, block);
    const Matrix keys = source_of(scratch.keys[block], scratch.sums);
    pack(packed.key(position), rows, shape, 1, position, keys);
    of_keys(block, rows, keys);
    as_rows(keys, round_up(rows, kPackedRows), width, scratch.keys[block]);
    const Matrix values = source_of(scratch.values[block], scratch.sums);
    pack(packed.value(position), rows, shape, 1, -1, values);
    as_terms(values, round_up(rows, kPackedRows), width, scratch.values[block]);
  }
}

template <class E>
struct BackwardScratch {
  static constexpr int64_t kTerms = kBlock / Operand<E>::kValues;  // terms that kBlock keys or queries make

  Blocks<E> keys, values;                                       // (blocks * kBlock, width of a factor)
  Blocks<E, true> key_terms;                                    // (blocks * kTerms, padded width)
  Blocks<float> key_gradients, value_gradients;                 // (blocks * kBlock, padded width)
  Matrix packed_queries, packed_output_gradients;               // (kBlock, padded width)
  MatrixOf<E> rows;                                             // (kBlock, width of a factor)
  MatrixOf<E> query_terms, output_gradient_terms;               // (kTerms, padded width)
  MatrixOf<E> queries_transposed, output_gradients_transposed;  // (width of a factor, kBlock)
  Matrix weights, score_gradients, factors;                     // (kBlock keys, kBlock queries)
  MatrixOf<E> weight_rows, score_gradient_rows;                 // (kBlock keys, width of a factor of kBlock)
  MatrixOf<E> score_gradient_terms;                             // (kTerms, kBlock queries)
  float* log_sums;                                              // (kBlock)
  float* deltas;                                                // (kBlock): sums over D of output times its gradient
  int64_t floats;

  BackwardScratch(const AttentionShape& shape, Arena arena) {
    const int64_t width = shape.padded_width(), factor = factor_columns<E>(width), all = shape.blocks() * kBlock;
    for (Blocks<E>* blocks : {&keys, &values}) blocks->all = arena.elements<E>(all, factor);
    key_terms.all = arena.factor<E>(keys.all, all / Operand<E>::kValues, width);
    for (Blocks<float>* blocks : {&key_gradients, &value_gradients}) blocks->all = arena.matrix(all, width);
    for (Matrix* matrix : {&packed_queries, &packed_output_gradients}) *matrix = arena.matrix(kBlock, width);
    rows = arena.factor<E>(packed_queries, kBlock, factor);
    query_terms = arena.factor<E>(packed_queries, kTerms, width);
    output_gradient_terms = arena.factor<E>(packed_output_gradients, kTerms, width);
    for (MatrixOf<E>* matrix : {&queries_transposed, &output_gradients_transposed}) {
      *matrix = arena.elements<E>(factor, kBlock);
    }
    for (Matrix* matrix : {&weights, &score_gradients, &factors}) *matrix = arena.matrix(kBlock, kBlock);
    weight_rows = arena.factor<E>(weights, kBlock, factor_columns<E>(kBlock));
    score_gradient_rows = arena.factor<E>(score_gradients, kBlock, factor_columns<E>(kBlock));
    score_gradient_terms = arena.factor<E>(score_gradients, kTerms, kBlock);
    log_sums = arena.take(kBlock);
    deltas = arena.take(kBlock);
    floats = arena.used();
  }
};

// Turns scores into weights, and the gradients of the weights into those of the scores.
template <class E>
void differentiate_weights(const BackwardScratch<E>& scratch, const Causal& causal, const Dropout& dropout) {
  for (int64_t query = 0; query < causal.queries; query += kLanes) {
    const FloatVector log_sum = FloatVector::loadu(scratch.log_sums + query),
                      delta = FloatVector::loadu(scratch.deltas + query);
    const auto step = [&](int64_t key, auto is_hidden) {
      float *weights = scratch.weights.row(key) + query, *gradients = scratch.score_gradients.row(key) + query;
      FloatVector weight = exp2(FloatVector::loadu(weights) - log_sum), gradient = FloatVector::loadu(gradients),
                  kept = weight;
      if (dropout) {
        const FloatVector factor = FloatVector::loadu(dropout.factors(key) + query);
        gradient = gradient * factor;
        kept = kept * factor;
      }
      gradient = weight * (gradient - delta);
      if constexpr (is_hidden) {
        const FloatVector visible = causal.sees(query, key), zero(0.0f);
        kept = FloatVector::blendv(zero, kept, visible);
        gradient = FloatVector::blendv(zero, gradient, visible);
      }
      kept.store(weights);
      gradient.store(gradients);
    };
    int64_t key = causal.begin(query);
    for (; key < causal.first_visible(query); ++key) step(key, std::true_type());
    for (; key < causal.visible(query); ++key) step(key, std::false_type());
    for (; key < causal.end(query); ++key) step(key, std::true_type());
  }
}

// The gradients that a block of queries and a block of keys give each other. add_keys, add_queries: to what is there.
template <class E>
void differentiate(const AttentionShape& shape, const BackwardScratch<E>& scratch, const Causal& causal,
                   int64_t key_block, const Dropout& dropout, bool add_keys, Matrix query_gradients, bool add_queries,
                   Ahead& ahead) {
  multiply<false>(causal.keys, scratch.keys[key_block], scratch.queries_transposed, scratch.weights, /*add=*/false,
                  causal.scores(shape.D), ahead);
  multiply<false>(causal.keys, scratch.values[key_block], scratch.output_gradients_transposed, scratch.score_gradients,
                  /*add=*/false, causal.scores(shape.D), ahead);
  differentiate_weights(scratch, causal, dropout);
  as_rows(scratch.weights, causal.keys, causal.queries, scratch.weight_rows);
  multiply<false>(causal.keys, scratch.weight_rows, scratch.output_gradient_terms, scratch.value_gradients[key_block],
                  add_keys, causal.over_queries(), ahead);
  as_rows(scratch.score_gradients, causal.keys, causal.queries, scratch.score_gradient_rows);
  multiply<false>(causal.keys, scratch.score_gradient_rows, scratch.query_terms, scratch.key_gradients[key_block],
                  add_keys, causal.over_queries(), ahead);
  as_terms(scratch.score_gradients, causal.packed_keys(), round_up(causal.queries, kColumns),
           scratch.score_gradient_terms);
  multiply<true>(causal.queries, scratch.score_gradient_terms, scratch.key_terms[key_block], query_gradients,
                 add_queries, causal.over_keys(), ahead);
}

template <class E, class T>
void pack_keys(const AttentionShape& shape, const AttentionTask& task, const TaskHeads<const T>& packed,
               const BackwardScratch<E>& scratch) {
  const int64_t width = shape.padded_width();
  for (int64_t block = task.part; block < shape.blocks(); block += task.parts) {
    const int64_t position = block * kBlock, rows = block_rows(shape, block), packed_rows = round_up(rows, kPackedRows);
    const Matrix keys = source_of(scratch.keys[block], scratch.packed_queries);
    pack(packed.key(position), rows, shape, 1, position, keys);
    as_rows(keys, packed_rows, width, scratch.keys[block]);
    as_terms(keys, packed_rows, width, scratch.key_terms[block]);
    const Matrix values = source_of(scratch.values[block], scratch.packed_queries);
    pack(packed.value(position), rows, shape, 1, -1, values);
    as_rows(values, packed_rows, width, scratch.values[block]);
  }
}

// Makes the factors of the products from packed queries and gradients of the output, which zeros follow up to a multiple of kPackedRows.
template <class E>
void arrange_queries(const BackwardScratch<E>& scratch, int64_t rows) {
  const int64_t width = scratch.packed_queries.stride, packed_rows = round_up(rows, kPackedRows);
  as_columns(scratch.packed_queries, packed_rows, width, scratch.rows, scratch.queries_transposed);
  as_terms(scratch.packed_queries, packed_rows, width, scratch.query_terms);
  as_columns(scratch.packed_output_gradients, packed_rows, width, scratch.rows, scratch.output_gradients_transposed);
  as_terms(scratch.packed_output_gradients, packed_rows, width, scratch.output_gradient_terms);
}

template <class E, class T>
void unpack_key_gradients(const AttentionShape& shape, const AttentionTask& task, const BackwardScratch<E>& scratch,
                          const TaskHeads<T>& gradients) {
  for (int64_t block = task.part; block < shape.blocks(); block += task.parts) {
    const int64_t position = block * kBlock, rows = block_rows(shape, block);
    // The packed queries have the factor of the scores in units of log 2, the gradients of the scores are without it.
    unpack(scratch.key_gradients[block], rows, shape, kLn2, position, gradients.key(position));
    unpack(scratch.value_gradients[block], rows, shape, 1, -1, gradients.value(position));
  }
}

// Adds up what the keys of all parts contribute to a block of queries, in the place of the first part's. A part of which the queries see no
// keys has written nothing.
inline void add_parts(const AttentionShape& shape, AttentionTask task, int64_t block, float* sum) {
  const int64_t first = shape.first_key_block(task.batch, block), count = kBlock * shape.padded_width();
  bool is_begun = false;
  for (task.part = 0; task.part < task.parts; ++task.part) {
    if (task.first_from(first) > block) continue;
    const float* const more = sum + task.part * shape.query_sums();
    if (is_begun) {
      for (int64_t i = 0; i < count; ++i) sum[i] += more[i];
    } else if (task.part > 0) {
      std::copy(more, more + count, sum);
    }
    is_begun = true;
  }
}

template <class T>
void finish_queries(const AttentionShape& shape, const AttentionTask& task, float* query_sums, T* gradient) {
  const int64_t width = shape.padded_width(), rows = shape.blocks() * kBlock;
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape.D));
  const TaskHeads gradients(gradient, shape.heads(), shape, task);
  for (int64_t g = 0; g < shape.group(); ++g) {
    float* const sums = query_sums + g * rows * width;
    for (int64_t block = 0; block < shape.blocks(); ++block)
      add_parts(shape, task, block, sums + block * kBlock * width);
    unpack(Matrix{sums, width}, shape.T, shape, scale, 0, gradients.query(g, 0));
  }
}

template <class Scratch>
int64_t scratch_floats(const AttentionShape& shape) {
  return Scratch(shape, Arena(nullptr)).floats;
}
}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
