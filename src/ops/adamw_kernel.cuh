// AdamW's update on a GPU: a thread has eight neighbouring values, all of one parameter.
#pragma once

#include <cmath>

#include "adamw_of.h"
#include "gpt/parameters/alignment.h"
#include "launch.cuh"

namespace gpt::ops::cuda {

// The update's numbers on the device.
struct AdamWNumbers {
  const float *learning_rate, *step_count, *divisor, *found_inf;
  float log_beta1, log_beta2, weight_decay;

  // Where beta^t is near 1, subtracting it from 1 would leave few digits.
  __device__ AdamWStep step() const {
    const float correction1 = -expm1f(*step_count * log_beta1), correction2 = -expm1f(*step_count * log_beta2);
    return {1 / *divisor, 1 - *learning_rate * weight_decay, *learning_rate / correction1, 1 / sqrtf(correction2)};
  }
};

inline constexpr int64_t kAdamWThreads = 256;

template <class R>
__global__ void __launch_bounds__(kAdamWThreads)
    adamw_kernel(AdamWValues<R> of, AdamWFactors factors, AdamWNumbers numbers, int64_t count) {
  const int64_t begin = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kGroup;
  if (begin >= count || *numbers.found_inf != 0) return;
  const AdamWStep step = numbers.step();
  const float kept = of.decays[begin / kParameterAlignment] ? step.kept_by_decay : 1.0f;
  const Group gradient = load<true>(of.gradients + begin, kGroup);
  Group value = load<true>(of.values + begin, kGroup), m = load<true>(of.exp_avg + begin, kGroup),
        v = load<true>(of.exp_avg_sq + begin, kGroup);
  for (int i = 0; i < kGroup; ++i) {
    const float g = gradient.values[i] * step.inverse_divisor;
    m.values[i] += factors.new_in_exp_avg * (g - m.values[i]);
    v.values[i] = factors.old_in_exp_avg_sq * v.values[i] + factors.new_in_exp_avg_sq * g * g;
    const float divisor = sqrtf(v.values[i]) * step.inverse_root + factors.eps;
    value.values[i] = value.values[i] * kept - step.rate * m.values[i] / divisor;
  }
  store<true>(value, of.values + begin, kGroup);
  store<true>(m, of.exp_avg + begin, kGroup);
  store<true>(v, of.exp_avg_sq + begin, kGroup);
  if (of.rounded) store<true>(value, of.rounded + begin, kGroup);
}

// As cpu::adamw().
template <class Launch>
void adamw(const Launch& launch, const AdamWBuffers& buffers, const AdamWRates& rates, const AdamWScalars& scalars) {
  const int64_t count = buffers.values.numel();
  const AdamWNumbers numbers{.learning_rate = read<float>(scalars.learning_rate),
                             .step_count = read<float>(scalars.step_count),
                             .divisor = read<float>(scalars.divisor),
                             .found_inf = read<float>(scalars.found_inf),
                             .log_beta1 = static_cast<float>(std::log(rates.beta1)),
                             .log_beta2 = static_cast<float>(std::log(rates.beta2)),
                             .weight_decay = static_cast<float>(rates.weight_decay)};
  const auto update = [&]<class R>() {
    const auto of = adamw_values<R>(buffers);
    TORCH_CHECK(are_aligned(of.values, of.gradients, of.exp_avg, of.exp_avg_sq, of.rounded),
                "adamw: the buffers must begin at multiples of 16 bytes");
    launch(adamw_kernel<R>, (count / kGroup + kAdamWThreads - 1) / kAdamWThreads, kAdamWThreads, of,
           adamw_factors(rates), numbers, count);
  };
  const bool is_half = buffers.rounded.defined() && buffers.rounded.scalar_type() == at::kHalf;
  is_half ? update.template operator()<c10::Half>() : update.template operator()<c10::BFloat16>();
}

}  // namespace gpt::ops::cuda
