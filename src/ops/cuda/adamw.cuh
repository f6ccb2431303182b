// AdamW's update on a GPU: a thread has eight neighbouring values, and a warp a block of kParameterAlignment, all of one parameter.
#pragma once

#include <cmath>

#include "moment_groups.cuh"
#include "ops/adamw_arguments.h"

namespace gpt::ops::cuda {

// The update's numbers on the device.
struct AdamWNumbers {
  const float *learning_rate, *decay_share, *step_count, *divisor, *found_inf;
  float log_beta1, log_beta2, weight_decay;

  // Where beta^t is near 1, subtracting it from 1 would leave few digits.
  __device__ AdamWStep step() const {
    const float correction1 = -expm1f(*step_count * log_beta1), correction2 = -expm1f(*step_count * log_beta2);
    const float decay = *decay_share * weight_decay;
    return {1 / *divisor, 1 - *learning_rate * decay, *learning_rate / correction1, 1 / sqrtf(correction2),
            static_cast<uint32_t>(*step_count)};
  }
};

// The moments of one group.
struct Moments {
  Group m, v;
};

// load_moments() and store_moments() for each type in which moments are kept. Every lane of a warp calls them.
__device__ inline Moments load_moments(const AdamWValues<float>& of, int64_t begin) {
  return {load<true>(of.exp_avg + begin, kGroup), load<true>(of.exp_avg_sq + begin, kGroup)};
}

__device__ inline void store_moments(const AdamWValues<float>& of, int64_t begin, const Moments& moments,
                                     uint32_t /*number*/) {
  store<true>(moments.m, of.exp_avg + begin, kGroup);
  store<true>(moments.v, of.exp_avg_sq + begin, kGroup);
}

__device__ inline Moments load_moments(const AdamWValues<c10::BFloat16>& of, int64_t begin) {
  return {load<true>(of.exp_avg + begin, kGroup), load<true>(of.exp_avg_sq + begin, kGroup)};
}

__device__ inline void store_moments(const AdamWValues<c10::BFloat16>& of, int64_t begin, const Moments& moments,
                                     uint32_t number) {
  store<true>(moments.m, of.exp_avg + begin, kGroup);
  store_at_random(moments.v, kMomentRoundingKey, of.first_block, begin, number, of.exp_avg_sq);
}

__device__ inline Moments load_moments(const AdamWValues<uint8_t>& of, int64_t begin) {
  const int64_t block = begin / layout::kParameterAlignment;
  return {load_codes<true>(of.exp_avg + begin, of.exp_avg_max[block]),
          load_codes<false>(of.exp_avg_sq + begin, of.exp_avg_sq_max[block])};
}

__device__ inline void store_moments(const AdamWValues<uint8_t>& of, int64_t begin, const Moments& moments,
                                     uint32_t /*number*/) {
  const int64_t block = begin / layout::kParameterAlignment;
  store_codes<true>(moments.m, of.exp_avg + begin, of.exp_avg_max + block);
  store_codes<false>(moments.v, of.exp_avg_sq + begin, of.exp_avg_sq_max + block);
}

inline constexpr int64_t kAdamWThreads = 256;

template <class M>
__global__ void __launch_bounds__(kAdamWThreads)
    adamw_kernel(AdamWValues<M> of, AdamWFactors factors, AdamWNumbers numbers, int64_t count) {
  const int64_t begin = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kGroup;
  if (begin >= count || *numbers.found_inf != 0) return;  // whole warps: count is a multiple of what one has
  const AdamWStep step = numbers.step();
  const float kept = of.decays[begin / layout::kParameterAlignment] ? step.kept_by_decay : 1.0f;
  const Group gradient =
      of.gradients ? load<true>(of.gradients + begin, kGroup) : load<true>(of.rounded_gradients + begin, kGroup);
  Group value = of.values ? load<true>(of.values + begin, kGroup) : load<true>(of.rounded + begin, kGroup);
  Moments moments = load_moments(of, begin);
  for (int i = 0; i < kGroup; ++i) {
    float &m = moments.m.values[i], &v = moments.v.values[i];
    const float g = gradient.values[i] * step.inverse_divisor;
    m += factors.new_in_exp_avg * (g - m);
    v = factors.old_in_exp_avg_sq * v + factors.new_in_exp_avg_sq * g * g;
    const float divisor = sqrtf(v) * step.inverse_root + factors.eps;
    const bool decays = !factors.is_cautious || value.values[i] * m >= 0;
    value.values[i] = value.values[i] * (decays ? kept : 1.0f) - step.rate * m / divisor;
  }
  store_moments(of, begin, moments, step.number);
  if (of.values) {
    store<true>(value, of.values + begin, kGroup);
    if (of.rounded) store<true>(value, of.rounded + begin, kGroup);
  } else {
    store_at_random(value, kValueRoundingKey, of.first_block, begin, step.number, of.rounded);
  }
}

// As cpu::adamw().
template <class Launch>
void adamw(const Launch& launch, const AdamWBuffers& buffers, const AdamWRates& rates, const AdamWScalars& scalars) {
  const int64_t count = buffers.gradients.numel();
  const AdamWNumbers numbers{.learning_rate = read<float>(scalars.learning_rate),
                             .decay_share = read<float>(scalars.decay_share),
                             .step_count = read<float>(scalars.step_count),
                             .divisor = read<float>(scalars.divisor),
                             .found_inf = read<float>(scalars.found_inf),
                             .log_beta1 = static_cast<float>(std::log(rates.beta1)),
                             .log_beta2 = static_cast<float>(std::log(rates.beta2)),
                             .weight_decay = static_cast<float>(rates.weight_decay)};
  with_moment_type(buffers, [&]<class M>() {
    const auto of = adamw_values<M>(buffers);
    TORCH_CHECK(are_aligned(of.values, of.rounded, of.gradients, of.rounded_gradients, of.exp_avg, of.exp_avg_sq),
                "adamw: the buffers must begin at multiples of 16 bytes");
    launch(adamw_kernel<M>, (count / kGroup + kAdamWThreads - 1) / kAdamWThreads, kAdamWThreads, of,
           adamw_factors(rates), numbers, count);
  });
}

}  // namespace gpt::ops::cuda
