#include "attention_kernel.h"

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gpt/simd/matrix_tile.h"
#include "gpt/simd/philox.h"
#include "gpt/simd/vector_math.h"
#include "packed_heads.h"
#include "visible_scores.h"

// Everything is computed in float32 in blocks of 64 x 64 scores that stay in the cache; 16-bit values are converted as they
// are packed, which is little work beside the products. On processors with dot products of bfloat16 values the factors of the products
// are rounded to it, as the formula of 16-bit tensors is (pairs.h), and sums stay float32. Blocks that the window or other documents hide
// are skipped whole, and products skip what is hidden of the others, to within a tile.
//
// Scores lie transposed, with a row for each key, so that a vector holds scores of neighbouring queries: their maxima and sums
// are those of vectors, and nothing is ever summed inside one. Only queries, and the gradient of the output, are transposed for
// that. Scores are in units of log 2: the factor 1 / (sqrt(D) ln 2) is multiplied into the packed queries.

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

constexpr int64_t kBlock = AttentionShape::kBlock;
constexpr float kLn2 = 0.69314718f, kInfinity = std::numeric_limits<float>::infinity();

// Of a query that has not seen a key, so that the difference from another score is a number.
constexpr float kLowestScore = std::numeric_limits<float>::lowest();

float score_factor(const AttentionShape& shape) { return 1.0f / (std::sqrt(static_cast<float>(shape.D)) * kLn2); }

// What the weights (keys, queries) of a block are multiplied by; null data: nothing.
class Dropout {
 public:
  Dropout(const AttentionShape& shape, Matrix factors) : mask_(shape.dropout), factors_(factors) {
    if (!mask_) factors_.data = nullptr;
  }
  explicit operator bool() const { return factors_.data; }
  const float* factors(int64_t key) const { return factors_.row(key); }
  // Of a head in the micro-batch.
  void draw(const Causal& causal, int64_t batch, int64_t head, int64_t query_block, int64_t key_block) const {
    if (!factors_.data) return;
    const int64_t number = mask_.number_of(batch, head);
    for (int64_t key = 0; key < causal.keys; ++key) {
      dropout_factors(mask_, static_cast<uint32_t>(query_block), static_cast<uint32_t>(key_block * kBlock + key),
                      static_cast<uint32_t>(number), factors_.row(key));
    }
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
FloatVector largest_of(const float* vectors, int64_t stride, int64_t count, FloatVector largest) {
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
  if (!first) {
    const int64_t width = scratch.sums.stride;
    convert(
        scratch.sums.data, width, causal.queries, width, [&](int64_t i) { return running.correction[i]; },
        scratch.sums.data, width);
  }
}

// Adds what the queries take from one block of keys and values.
template <class E>
void attend(const AttentionShape& shape, const ForwardScratch<E>& scratch, const Causal& causal, int64_t key_block,
            const Dropout& dropout, bool first, Ahead& ahead) {
  multiply<false>(causal.keys, scratch.keys[key_block], scratch.queries, scratch.scores, /*add=*/false,
                  causal.scores(shape.D), ahead);
  exponentials(scratch, causal, dropout, first);
  as_terms(scratch.scores, causal.keys, round_up(causal.queries, kColumns), scratch.weights);
  multiply<true>(causal.queries, scratch.weights, scratch.values[key_block], scratch.sums, /*add=*/!first,
                 causal.over_keys(), ahead);
}

template <class T>
void forward(const AttentionShape& shape, const AttentionTask& task, const T* qkv, T* output, float* log_sum,
             float* memory) {
  const ForwardScratch<FactorOf<T>> scratch(shape, Arena(memory));
  const Dropout dropout(shape, scratch.factors);
  const TaskHeads packed(qkv, shape.heads(), shape, task);
  const TaskHeads to(output, shape.H, shape, task);
  const int64_t width = shape.padded_width(), first_matrix = task.batch * shape.H + task.kv_head * shape.group();
  for (int64_t block = 0; block < shape.blocks(); ++block) {
    const int64_t position = block * kBlock, rows = block_rows(shape, block);
    const Matrix keys = source_of(scratch.keys[block], scratch.sums);
    pack(packed.key(position), rows, shape, 1, position, keys);
    as_rows(keys, round_up(rows, kColumns), width, scratch.keys[block]);
    const Matrix values = source_of(scratch.values[block], scratch.sums);
    pack(packed.value(position), rows, shape, 1, -1, values);
    as_terms(values, round_up(rows, kColumns), width, scratch.values[block]);
  }
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
        attend(shape, scratch, causal, key_block, dropout, key_block == first, ahead);
      }
      for (int64_t i = 0; i < rows; i += kLanes) {
        const FloatVector sum = FloatVector::loadu(running.sum + i);
        (FloatVector::loadu(running.maximum + i) + sum.log2()).store(running.maximum + i);
        (FloatVector(1.0f) / sum).store(running.sum + i);
      }
      std::copy(running.maximum, running.maximum + rows, log_sum + matrix * shape.T + position);
      const Head<T> y = to.query(g, position);
      convert(
          scratch.sums.data, scratch.sums.stride, rows, shape.D, [&](int64_t i) { return running.sum[i]; }, y.data,
          y.stride);
    }
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
  as_terms(scratch.score_gradients, causal.keys, round_up(causal.queries, kColumns), scratch.score_gradient_terms);
  multiply<true>(causal.queries, scratch.score_gradient_terms, scratch.key_terms[key_block], query_gradients,
                 add_queries, causal.over_keys(), ahead);
}

template <class E, class T>
void pack_keys(const AttentionShape& shape, const AttentionTask& task, const TaskHeads<const T>& packed,
               const BackwardScratch<E>& scratch) {
  const int64_t width = shape.padded_width();
  for (int64_t block = task.part; block < shape.blocks(); block += task.parts) {
    const int64_t position = block * kBlock, rows = block_rows(shape, block), packed_rows = round_up(rows, kColumns);
    const Matrix keys = source_of(scratch.keys[block], scratch.packed_queries);
    pack(packed.key(position), rows, shape, 1, position, keys);
    as_rows(keys, packed_rows, width, scratch.keys[block]);
    as_terms(keys, packed_rows, width, scratch.key_terms[block]);
    const Matrix values = source_of(scratch.values[block], scratch.packed_queries);
    pack(packed.value(position), rows, shape, 1, -1, values);
    as_rows(values, packed_rows, width, scratch.values[block]);
  }
}

// A block of queries with the output y and its gradient dy.
template <class E, class T>
void pack_queries(const AttentionShape& shape, int64_t block, Head<const T> queries, Head<const T> y, Head<const T> dy,
                  const BackwardScratch<E>& scratch) {
  const int64_t width = shape.padded_width(), rows = block_rows(shape, block), packed_rows = round_up(rows, kColumns);
  dots(y, dy, rows, shape.D, Matrix{scratch.weights.data, kColumns}, scratch.score_gradients, scratch.deltas);
  pack(queries, rows, shape, score_factor(shape), block * kBlock, scratch.packed_queries);
  as_columns(scratch.packed_queries, packed_rows, width, scratch.rows, scratch.queries_transposed);
  as_terms(scratch.packed_queries, packed_rows, width, scratch.query_terms);
  pack(dy, rows, shape, 1, -1, scratch.packed_output_gradients);
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

template <class T>
void backward(const AttentionShape& shape, const AttentionTask& task, const T* qkv, const T* output,
              const float* log_sum, const T* output_gradient, T* gradient, float* query_sums, float* memory) {
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

// Adds up what the keys of all parts contribute to a block of queries, in the place of the first part's. A part of which the queries see no
// keys has written nothing.
void add_parts(const AttentionShape& shape, AttentionTask task, int64_t block, float* sum) {
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
