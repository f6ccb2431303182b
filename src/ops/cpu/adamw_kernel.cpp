#include "adamw_kernel.h"

#include "moment_blocks.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

using c10::BFloat16;

// Updates a vector of values and its moments in place, and returns the new values.
template <bool is_cautious>
FloatVector update(const AdamWFactors& factors, const AdamWStep& step, FloatVector kept, const float* gradient,
                   float* values, float* exp_avg, float* exp_avg_sq) {
  const FloatVector g = FloatVector::loadu(gradient) * FloatVector(step.inverse_divisor);
  FloatVector m = FloatVector::loadu(exp_avg), v = FloatVector::loadu(exp_avg_sq);
  m = at::vec::fmadd(FloatVector(factors.new_in_exp_avg), g - m, m);
  v = at::vec::fmadd(FloatVector(factors.new_in_exp_avg_sq) * g, g, FloatVector(factors.old_in_exp_avg_sq) * v);
  const FloatVector divisor = at::vec::fmadd(v.sqrt(), FloatVector(step.inverse_root), FloatVector(factors.eps));
  if constexpr (is_cautious) kept = kept_cautiously(kept, FloatVector::loadu(values), m);
  const FloatVector value = FloatVector::loadu(values) * kept - FloatVector(step.rate) * m / divisor;
  m.store(exp_avg);
  v.store(exp_avg_sq);
  value.store(values);
  return value;
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
  const auto update_all = [&]<bool is_cautious>() {
    for (int64_t i = 0; i < kBlock; i += FloatPair::size()) {
      const int64_t j = i + kWidth;
      const FloatVector low = update<is_cautious>(factors, step, kept, gradients + i, values + i, m + i, v + i),
                        high = update<is_cautious>(factors, step, kept, gradients + j, values + j, m + j, v + j);
      if (of.values && of.rounded) store({low, high}, of.rounded + begin + i);
    }
  };
  factors.is_cautious ? update_all.template operator()<true>() : update_all.template operator()<false>();
  if (!of.values) round_at_random(values, kValueRoundingKey, step.number, of.first_block + block, of.rounded + begin);
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
