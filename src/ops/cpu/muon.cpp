#include <ATen/Parallel.h>

#include <type_traits>

#include "gpt/layout/alignment.h"
#include "gpt/simd/cpu_capability.h"
#include "muon_kernel.h"
#include "ops/kernels.h"
#include "ops/muon_arguments.h"

namespace gpt::ops::cpu {

GPT_CPU_KERNEL(MuonDirectionKernel<float>, muon_direction_float32)
GPT_CPU_KERNEL(MuonDirectionKernel<c10::BFloat16>, muon_direction_bfloat16)
GPT_CPU_KERNEL(MuonDirectionKernel<uint8_t>, muon_direction_codes)
GPT_CPU_KERNEL(MuonUpdateKernel, muon_update_values)

namespace {

constexpr int64_t kMuonGrain = 64;  // blocks: below, waking a thread costs more than it saves

template <class M>
MuonDirectionKernel<M> best_muon_direction() {
  if constexpr (std::is_same_v<M, uint8_t>)
    return best_muon_direction_codes();
  else if constexpr (std::is_same_v<M, c10::BFloat16>)
    return best_muon_direction_bfloat16();
  else
    return best_muon_direction_float32();
}

}  // namespace

void muon_direction(const MuonBuffers& buffers, double momentum, const MuonScalars& scalars) {
  if (scalars.found_inf.item<float>() != 0) return;
  const auto inverse_divisor = static_cast<float>(1 / scalars.divisor.item<double>());
  const MuonFactors factors = muon_factors(momentum);
  with_momentum(buffers, [&]<class M>(const MuonMomentum<M>& of) {
    at::parallel_for(0, buffers.gradients.numel() / layout::kParameterAlignment, kMuonGrain,
                     [&](int64_t begin, int64_t end) {
                       best_muon_direction<M>()(of, factors, inverse_divisor, begin, end);
                     });
  });
}

void muon_update(const MuonWeights& weights, const MuonRates& rates, const MuonScalars& scalars) {
  if (scalars.found_inf.item<float>() != 0) return;
  const double learning_rate = scalars.learning_rate.item<double>(),
               decay = scalars.decay_share.item<double>() * rates.weight_decay;
  const MuonStep step{.kept_by_decay = static_cast<float>(1 - learning_rate * decay),
                      .rate = static_cast<float>(learning_rate * rates.size),
                      .number = static_cast<uint32_t>(scalars.step_count.item<double>()),
                      .is_cautious = rates.is_cautious};
  const MuonValues of = muon_values(weights);
  at::parallel_for(0, weights.direction.numel() / layout::kParameterAlignment, kMuonGrain,
                   [&](int64_t begin, int64_t end) { best_muon_update_values()(of, step, begin, end); });
}

}  // namespace gpt::ops::cpu
