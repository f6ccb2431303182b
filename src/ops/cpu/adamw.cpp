#include <ATen/Parallel.h>

#include <cmath>
#include <type_traits>

#include "adamw_kernel.h"
#include "gpt/simd/cpu_capability.h"
#include "ops/adamw_arguments.h"
#include "ops/kernels.h"

namespace gpt::ops::cpu {

GPT_CPU_KERNEL(AdamWKernel<float>, adamw_float32)
GPT_CPU_KERNEL(AdamWKernel<c10::BFloat16>, adamw_bfloat16)
GPT_CPU_KERNEL(AdamWKernel<uint8_t>, adamw_codes)

namespace {

template <class M>
AdamWKernel<M> best_adamw() {
  if constexpr (std::is_same_v<M, uint8_t>)
    return best_adamw_codes();
  else if constexpr (std::is_same_v<M, c10::BFloat16>)
    return best_adamw_bfloat16();
  else
    return best_adamw_float32();
}

}  // namespace

void adamw(const AdamWBuffers& buffers, const AdamWRates& rates, const AdamWScalars& scalars) {
  if (scalars.found_inf.item<float>() != 0) return;
  constexpr int64_t kGrain = 64;  // blocks: below, waking a thread costs more than it saves
  const double t = scalars.step_count.item<double>(), learning_rate = scalars.learning_rate.item<double>(),
               decay = scalars.decay_share.item<double>() * rates.weight_decay;
  const AdamWStep step{
      .inverse_divisor = static_cast<float>(1 / scalars.divisor.item<double>()),
      .kept_by_decay = static_cast<float>(1 - learning_rate * decay),
      .rate = static_cast<float>(learning_rate / (1 - std::pow(rates.beta1, t))),
      .inverse_root = static_cast<float>(1 / std::sqrt(1 - std::pow(rates.beta2, t))),
      .number = static_cast<uint32_t>(t),
  };
  const AdamWFactors factors = adamw_factors(rates);
  with_moment_type(buffers, [&]<class M>() {
    const auto values = adamw_values<M>(buffers);
    at::parallel_for(0, buffers.decays.numel(), kGrain,
                     [&](int64_t begin, int64_t end) { best_adamw<M>()(values, factors, step, begin, end); });
  });
}

}  // namespace gpt::ops::cpu
