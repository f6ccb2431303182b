#include "muon_kernel.h"

#include "moment_blocks.h"
#include "ops/adamw_values.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

// A block whose momentum is float32 at `m`.
template <class M>
void direct_block(const MuonMomentum<M>& of, const MuonFactors& factors, float inverse_divisor, int64_t block,
                  float* m) {
  const int64_t begin = block * kBlock;
  const FloatVector new_in_momentum(factors.new_in_momentum), momentum(factors.momentum_in_direction);
  alignas(64) float wide_gradients[kBlock], wide_direction[kBlock];
  if (!of.gradients) convert(of.rounded_gradients + begin, wide_gradients);
  const float* const gradients = of.gradients ? of.gradients + begin : wide_gradients;
  float* const direction = of.direction ? of.direction + begin : wide_direction;
  for (int64_t i = 0; i < kBlock; i += kWidth) {
    const FloatVector g = FloatVector::loadu(gradients + i) * FloatVector(inverse_divisor);
    const FloatVector old = FloatVector::loadu(m + i), next = at::vec::fmadd(new_in_momentum, g - old, old);
    next.store(m + i);
    at::vec::fmadd(momentum, next - g, g).store(direction + i);
  }
  if (!of.direction) convert(wide_direction, of.rounded_direction + begin);
}

void direct_float32(const MuonMomentum<float>& of, const MuonFactors& factors, float inverse_divisor, int64_t begin,
                    int64_t end) {
  for (int64_t block = begin; block < end; ++block)
    direct_block(of, factors, inverse_divisor, block, of.momentum + block * kBlock);
}

void direct_bfloat16(const MuonMomentum<c10::BFloat16>& of, const MuonFactors& factors, float inverse_divisor,
                     int64_t begin, int64_t end) {
  alignas(64) float m[kBlock];
  for (int64_t block = begin; block < end; ++block) {
    convert(of.momentum + block * kBlock, m);
    direct_block(of, factors, inverse_divisor, block, m);
    convert(m, of.momentum + block * kBlock);
  }
}

void direct_codes(const MuonMomentum<uint8_t>& of, const MuonFactors& factors, float inverse_divisor, int64_t begin,
                  int64_t end) {
  alignas(64) float m[kBlock];
  for (int64_t block = begin; block < end; ++block) {
    decode</*is_signed=*/true>(of.momentum + block * kBlock, of.momentum_max[block], m);
    direct_block(of, factors, inverse_divisor, block, m);
    encode</*is_signed=*/true>(m, of.momentum + block * kBlock, of.momentum_max[block]);
  }
}

void move_block(const MuonValues& of, const MuonStep& step, int64_t block) {
  const int64_t begin = block * kBlock;
  const FloatVector kept(step.kept_by_decay), rate(step.rate);
  alignas(64) float wide_direction[kBlock], wide_values[kBlock];
  if (!of.direction) convert(of.rounded_direction + begin, wide_direction);
  if (!of.values) convert(of.rounded + begin, wide_values);
  const float* const direction = of.direction ? of.direction + begin : wide_direction;
  float* const values = of.values ? of.values + begin : wide_values;
  for (int64_t i = 0; i < kBlock; i += kWidth) {
    const FloatVector value = FloatVector::loadu(values + i), d = FloatVector::loadu(direction + i);
    const FloatVector left = value * (step.is_cautious ? kept_cautiously(kept, value, d) : kept);
    (left - rate * d).store(values + i);
  }
  if (!of.values)
    return round_at_random(values, kValueRoundingKey, step.number, of.first_block + block, of.rounded + begin);
  if (of.rounded) convert(values, of.rounded + begin);
}

void move_values(const MuonValues& of, const MuonStep& step, int64_t begin, int64_t end) {
  for (int64_t block = begin; block < end; ++block) move_block(of, step, block);
}

}  // namespace

extern const MuonDirectionKernel<float> muon_direction_float32;
extern const MuonDirectionKernel<c10::BFloat16> muon_direction_bfloat16;
extern const MuonDirectionKernel<uint8_t> muon_direction_codes;
extern const MuonUpdateKernel muon_update_values;
const MuonDirectionKernel<float> muon_direction_float32 = direct_float32;
const MuonDirectionKernel<c10::BFloat16> muon_direction_bfloat16 = direct_bfloat16;
const MuonDirectionKernel<uint8_t> muon_direction_codes = direct_codes;
const MuonUpdateKernel muon_update_values = move_values;

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
