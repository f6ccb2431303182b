#include "adamw_kernel.h"

#include <bit>
#include <cstring>

#include "gpt/layout/alignment.h"
#include "gpt/simd/float_pair.h"
#include "gpt/simd/philox.h"
#include "ops/moment_map.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

using c10::BFloat16;

constexpr int64_t kWidth = FloatVector::size(), kBlock = kParameterAlignment;

// Updates a vector of values and its moments in place, and returns the new values.
FloatVector update(const AdamWFactors& factors, const AdamWStep& step, FloatVector kept, const float* gradient,
                   float* values, float* exp_avg, float* exp_avg_sq) {
  const FloatVector g = FloatVector::loadu(gradient) * FloatVector(step.inverse_divisor);
  FloatVector m = FloatVector::loadu(exp_avg), v = FloatVector::loadu(exp_avg_sq);
  m = at::vec::fmadd(FloatVector(factors.new_in_exp_avg), g - m, m);
  v = at::vec::fmadd(FloatVector(factors.new_in_exp_avg_sq) * g, g, FloatVector(factors.old_in_exp_avg_sq) * v);
  const FloatVector divisor = at::vec::fmadd(v.sqrt(), FloatVector(step.inverse_root), FloatVector(factors.eps));
  const FloatVector value = FloatVector::loadu(values) * kept - FloatVector(step.rate) * m / divisor;
  m.store(exp_avg);
  v.store(exp_avg_sq);
  value.store(values);
  return value;
}

// A block, rounded to nearest where the result has fewer bits.
template <class From, class To>
void convert(const From* from, To* to) {
  for (int64_t i = 0; i < kBlock; i += FloatPair::size()) store(load(from + i), to + i);
}

// Up with the probability of what lies above the lower neighbour: 16 random bits are added to those that are cut off.
void round_at_random(const float* from, uint64_t key, uint32_t number, int64_t block, BFloat16* to) {
  // Each call gives 4 words in each lane, and a word has the bits for two values.
  constexpr int64_t kCalls = kBlock / (2 * 4 * kPhiloxLanes);
  alignas(64) uint32_t random[kBlock];
  for (int64_t call = 0; call < kCalls; ++call) {
    const auto counter = static_cast<uint64_t>(block * kCalls + call) * kPhiloxLanes;
    const PhiloxWords drawn = philox(key, static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), number,
                                     /*fourth=*/0);
    std::memcpy(&random[call * 4 * kPhiloxLanes], drawn.words, sizeof drawn.words);
  }
  for (int64_t i = 0; i < kBlock / 2; ++i) random[kBlock / 2 + i] = random[i] >> 16, random[i] &= 0xffff;
  for (int64_t i = 0; i < kBlock; ++i)
    to[i].x = static_cast<uint16_t>((std::bit_cast<uint32_t>(from[i]) + random[i]) >> 16);
}

// A block whose moments are float32 at `m` and `v`.
template <class M>
void update_block(const AdamWValues<M>& of, const AdamWFactors& factors, const AdamWStep& step, int64_t block, float* m,
                  float* v) {
  const FloatVector kept(of.decays[block] ? step.kept_by_decay : 1.0f);
  const int64_t begin = block * kBlock;
  alignas(64) float wide_gradients[kBlock], wide_values[kBlock];
  if (!of.gradients) convert(of.rounded_gradients + begin, wide_gradients);
  if (!of.values) convert(of.rounded + begin, wide_values);
  const float* const gradients = of.gradients ? of.gradients + begin : wide_gradients;
  float* const values = of.values ? of.values + begin : wide_values;
  for (int64_t i = 0; i < kBlock; i += FloatPair::size()) {
    const int64_t j = i + kWidth;
    const FloatVector low = update(factors, step, kept, gradients + i, values + i, m + i, v + i),
                      high = update(factors, step, kept, gradients + j, values + j, m + j, v + j);
    if (of.values && of.rounded) store({low, high}, of.rounded + begin + i);
  }
  if (!of.values) round_at_random(values, kValueRoundingKey, step.number, of.first_block + block, of.rounded + begin);
}

template <bool is_signed>
void decode(const uint8_t* codes, float maximum, float* to) {
  for (int64_t i = 0; i < kBlock; ++i) to[i] = decoded_moment<is_signed>(codes[i]) * maximum;
}

template <bool is_signed>
void encode(const float* from, uint8_t* codes, float& maximum) {
  FloatVector largest(0.0f);
  for (int64_t i = 0; i < kBlock; i += kWidth)
    largest = at::vec::clamp_min(FloatVector::loadu(from + i).abs(), largest);
  maximum = maximum_of(largest);
  const float reciprocal = reciprocal_of_maximum(maximum);
  for (int64_t i = 0; i < kBlock; ++i) codes[i] = static_cast<uint8_t>(encoded_moment<is_signed>(from[i] * reciprocal));
}

void update_float32(const AdamWValues<float>& of, const AdamWFactors& factors, const AdamWStep& step, int64_t begin,
                    int64_t end) {
  for (int64_t block = begin; block < end; ++block)
    update_block(of, factors, step, block, of.exp_avg + block * kBlock, of.exp_avg_sq + block * kBlock);
}

void update_bfloat16(const AdamWValues<BFloat16>& of, const AdamWFactors& factors, const AdamWStep& step, int64_t begin,
                     int64_t end) {
  alignas(64) float m[kBlock], v[kBlock];
  for (int64_t block = begin; block < end; ++block) {
    BFloat16 *const exp_avg = of.exp_avg + block * kBlock, *const exp_avg_sq = of.exp_avg_sq + block * kBlock;
    convert(exp_avg, m);
    convert(exp_avg_sq, v);
    update_block(of, factors, step, block, m, v);
    convert(m, exp_avg);
    round_at_random(v, kMomentRoundingKey, step.number, of.first_block + block, exp_avg_sq);
  }
}

void update_codes(const AdamWValues<uint8_t>& of, const AdamWFactors& factors, const AdamWStep& step, int64_t begin,
                  int64_t end) {
  alignas(64) float m[kBlock], v[kBlock];
  for (int64_t block = begin; block < end; ++block) {
    uint8_t *const exp_avg = of.exp_avg + block * kBlock, *const exp_avg_sq = of.exp_avg_sq + block * kBlock;
    decode</*is_signed=*/true>(exp_avg, of.exp_avg_max[block], m);
    decode</*is_signed=*/false>(exp_avg_sq, of.exp_avg_sq_max[block], v);
    update_block(of, factors, step, block, m, v);
    encode</*is_signed=*/true>(m, exp_avg, of.exp_avg_max[block]);
    encode</*is_signed=*/false>(v, exp_avg_sq, of.exp_avg_sq_max[block]);
  }
}

}  // namespace

extern const AdamWKernel<float> adamw_float32;
extern const AdamWKernel<BFloat16> adamw_bfloat16;
extern const AdamWKernel<uint8_t> adamw_codes;
const AdamWKernel<float> adamw_float32 = update_float32;
const AdamWKernel<BFloat16> adamw_bfloat16 = update_bfloat16;
const AdamWKernel<uint8_t> adamw_codes = update_codes;

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
