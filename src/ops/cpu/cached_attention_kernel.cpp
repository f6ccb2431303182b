#include "cached_attention_kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "block_choice.h"
#include "gpt/simd/float_pair.h"
#include "gpt/simd/row_steps.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

using c10::BFloat16;

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// The largest score of `count` keys, all in powers of 2. Behind them, up to a whole vector, are scores that weigh nothing.
template <class T>
float write_scores(const T* query, const T* keys, int64_t count, int64_t D, float* scores) {
  const float scale = 1.44269504f / std::sqrt(static_cast<float>(D));  // log2(e)
  float largest = kLowest;
  for (int64_t key = 0; key < count; ++key) {
    FloatPair sum;
    for_each_step(D, [&](int64_t d, auto values) {
      sum = fmadd(load(query + d, values), load(keys + key * D + d, values), sum);
    });
    scores[key] = scale * sum_of(sum.low + sum.high);
    largest = std::max(largest, scores[key]);
  }
  std::fill(scores + count, scores + (count + FloatVector::size() - 1) / FloatVector::size() * FloatVector::size(),
            kLowest);
  return largest;
}

// Replaces scores by weights relative to the largest one. Returns their sum.
float weigh(float* scores, int64_t count, float largest) {
  FloatVector sum(0.0f);
  for (int64_t i = 0; i < count; i += FloatVector::size()) {
    const FloatVector weight = exp2(FloatVector::loadu(scores + i) - FloatVector(largest));
    weight.store(scores + i);
    sum = sum + weight;
  }
  return sum_of(sum);
}

// kPairs pairs of vectors of the values at a time stay in registers.
template <int kPairs, class T>
void add_values(const float* weights, const T* values, int64_t count, int64_t D, int64_t width, float* result) {
  FloatPair sums[kPairs];
  for (int64_t key = 0; key < count; ++key) {
    const FloatVector weight(weights[key]);
#pragma GCC unroll 4
    for (int i = 0; i < kPairs; ++i) {
      const int64_t there = kPairs == 1 ? width : kStep;
      sums[i] = fmadd({weight, weight}, load(values + key * D + i * kStep, there), sums[i]);
    }
  }
  for (int i = 0; i < kPairs; ++i) store(sums[i], result + i * kStep, kPairs == 1 ? width : kStep);
}

template <class T>
void add_all_values(const float* weights, const T* values, int64_t count, int64_t D, float* result) {
  constexpr int kPairs = 4;
  int64_t d = 0;
  for (; d + kPairs * kStep <= D; d += kPairs * kStep)
    add_values<kPairs>(weights, values + d, count, D, kPairs * kStep, result + d);
  for (; d + 2 * kStep <= D; d += 2 * kStep) add_values<2>(weights, values + d, count, D, 2 * kStep, result + d);
  for (; d < D; d += kStep) add_values<1>(weights, values + d, count, D, std::min(kStep, D - d), result + d);
}

template <class T>
void attend(const CachedPart<T>& part) {
  alignas(64) float scores[kCachedPart];
  const T *const keys = part.keys + part.begin * part.D, *const values = part.values + part.begin * part.D;
  float* sums = part.sums;
  for (int64_t token = 0; token < part.tokens; ++token) {
    const auto in_part = [&](int64_t position) { return std::clamp(position, part.begin, part.end) - part.begin; };
    const int64_t end = part.past + token + 1, first = in_part(end - part.window), count = in_part(end) - first;
    for (int64_t head = 0; head < part.group; ++head, sums += part.sums_stride) {
      const T* const query = part.queries + token * part.token_stride + head * part.query_stride;
      sums[0] = write_scores(query, keys + first * part.D, count, part.D, scores);
      sums[1] = weigh(scores, count, sums[0]);
      add_all_values(scores, values + first * part.D, count, part.D, sums + 2);
    }
  }
}

template <class T>
void finish(const float* sums, int64_t parts, int64_t D, T* y) {
  const int64_t stride = cached_sums(D);
  float largest = sums[0], total = 0;
  for (int64_t part = 1; part < parts; ++part) largest = std::max(largest, sums[part * stride]);
  for (int64_t part = 0; part < parts; ++part)
    total += sums[part * stride + 1] * std::exp2(sums[part * stride] - largest);
  for_each_step(D, [&](int64_t d, auto count) {
    FloatPair sum;
    for (int64_t part = 0; part < parts; ++part) {
      const FloatVector share(std::exp2(sums[part * stride] - largest) / total);
      sum = fmadd({share, share}, load(sums + part * stride + 2 + d, count), sum);
    }
    store(sum, y + d, count);
  });
}

template <class T>
void average(const T* keys, int64_t positions, int64_t D, float* mean) {
  std::fill_n(mean, D, 0.0f);
  add_stored<T>(keys, D, positions, D, mean);
  divide(mean, positions, D);
}

int64_t choice_width(int64_t D) { return round_up(D, kColumns); }

int64_t choice_floats(int64_t blocks, int64_t top, int64_t D) {
  Arena arena(nullptr);
  (void)ChoiceScratch(blocks, top, choice_width(D), arena);
  return arena.used();
}

template <class T>
void choose(const ChoosingQueries<T>& of, float* memory, int32_t* chosen) {
  if (of.blocks <= of.top) return ChoiceScratch::choose_all(of.blocks, of.count, of.top, chosen);
  Arena arena(memory);
  const ChoiceScratch scratch(of.blocks, of.top, choice_width(of.D), arena);
  std::fill_n(scratch.queries.data, round_up(of.count, kColumns) * scratch.queries.stride, 0.0f);
  for (int64_t i = 0; i < of.count; ++i)
    for (int64_t d = 0; d < of.D; ++d) scratch.queries.row(i)[d] = static_cast<float>(of.queries[i][d]);
  // The product only reads them.
  scratch.weigh(Matrix{const_cast<float*>(of.means), of.D}, of.blocks, of.count, of.D);
  scratch.choose(of.blocks, of.count, of.top, chosen);
}

}  // namespace

extern const CachedAttentionKernel<float> cached_attention_float32;
extern const CachedAttentionKernel<BFloat16> cached_attention_bfloat16;
const CachedAttentionKernel<float> cached_attention_float32 = {attend<float>, finish<float>, average<float>,
                                                               choose<float>, choice_floats};
const CachedAttentionKernel<BFloat16> cached_attention_bfloat16 = {attend<BFloat16>, finish<BFloat16>,
                                                                   average<BFloat16>, choose<BFloat16>, choice_floats};

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
