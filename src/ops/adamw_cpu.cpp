#include <ATen/Parallel.h>

#include <cmath>

#include "adamw_kernel.h"
#include "adamw_of.h"
#include "cpu_capability.h"
#include "kernels.h"

namespace gpt::ops::cpu {

GPT_CPU_KERNEL(AdamWKernel, adamw_update)

void adamw(const AdamWBuffers& buffers, const AdamWRates& rates, const AdamWScalars& scalars) {
  if (scalars.found_inf.item<float>() != 0) return;
  constexpr int64_t kGrain = 64;  // blocks: below, waking a thread costs more than it saves
  const double t = scalars.step_count.item<double>(), learning_rate = scalars.learning_rate.item<double>();
  const AdamWStep step{
      .inverse_divisor = static_cast<float>(1 / scalars.divisor.item<double>()),
      .kept_by_decay = static_cast<float>(1 - learning_rate * rates.weight_decay),
      .rate = static_cast<float>(learning_rate / (1 - std::pow(rates.beta1, t))),
      .inverse_root = static_cast<float>(1 / std::sqrt(1 - std::pow(rates.beta2, t))),
  };
  const AdamWFactors factors = adamw_factors(rates);
  const auto values = adamw_values<c10::BFloat16>(buffers);
  at::parallel_for(0, buffers.decays.numel(), kGrain,
                   [&](int64_t begin, int64_t end) { best_adamw_update()(values, factors, step, begin, end); });
}

}  // namespace gpt::ops::cpu
