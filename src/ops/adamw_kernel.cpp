#include "adamw_kernel.h"

#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>

#include "gpt/parameters/alignment.h"
#include "vector_math.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

// Loads, updates and stores the vector at `at`, and returns its new values.
FloatVector update(const AdamWValues<c10::BFloat16>& of, const AdamWFactors& factors, const AdamWStep& step,
                   FloatVector kept, int64_t at) {
  const FloatVector g = FloatVector::loadu(of.gradients + at) * FloatVector(step.inverse_divisor);
  FloatVector m = FloatVector::loadu(of.exp_avg + at), v = FloatVector::loadu(of.exp_avg_sq + at);
  m = at::vec::fmadd(FloatVector(factors.new_in_exp_avg), g - m, m);
  v = at::vec::fmadd(FloatVector(factors.new_in_exp_avg_sq) * g, g, FloatVector(factors.old_in_exp_avg_sq) * v);
  const FloatVector divisor = at::vec::fmadd(v.sqrt(), FloatVector(step.inverse_root), FloatVector(factors.eps));
  const FloatVector value = FloatVector::loadu(of.values + at) * kept - FloatVector(step.rate) * m / divisor;
  m.store(of.exp_avg + at);
  v.store(of.exp_avg_sq + at);
  value.store(of.values + at);
  return value;
}

void update_blocks(const AdamWValues<c10::BFloat16>& of, const AdamWFactors& factors, const AdamWStep& step,
                   int64_t begin, int64_t end) {
  constexpr int64_t kWidth = FloatVector::size();
  for (int64_t block = begin; block < end; ++block) {
    const FloatVector kept(of.decays[block] ? step.kept_by_decay : 1.0f);
    for (int64_t at = block * kParameterAlignment; at < (block + 1) * kParameterAlignment; at += 2 * kWidth) {
      const FloatVector low = update(of, factors, step, kept, at), high = update(of, factors, step, kept, at + kWidth);
      if (of.rounded) at::vec::convert_from_float<c10::BFloat16>(low, high).store(of.rounded + at);
    }
  }
}

}  // namespace

extern const AdamWKernel adamw_update;
const AdamWKernel adamw_update = update_blocks;

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
