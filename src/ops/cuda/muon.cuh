// Muon's passes on a GPU: a thread has eight neighbouring values, and a warp a block of kParameterAlignment.
#pragma once

#include "moment_groups.cuh"
#include "ops/adamw_values.h"
#include "ops/muon_arguments.h"

namespace gpt::ops::cuda {

__device__ inline Group load_momentum(const MuonMomentum<uint8_t>& of, int64_t begin) {
  return load_codes<true>(of.momentum + begin, of.momentum_max[begin / layout::kParameterAlignment]);
}

__device__ inline void store_momentum(const MuonMomentum<uint8_t>& of, int64_t begin, const Group& momentum) {
  store_codes<true>(momentum, of.momentum + begin, of.momentum_max + begin / layout::kParameterAlignment);
}

template <class M>
__device__ Group load_momentum(const MuonMomentum<M>& of, int64_t begin) {
  return load<true>(of.momentum + begin, kGroup);
}

template <class M>
__device__ void store_momentum(const MuonMomentum<M>& of, int64_t begin, const Group& momentum) {
  store<true>(momentum, of.momentum + begin, kGroup);
}

inline constexpr int64_t kMuonThreads = 256;

template <class M>
__global__ void __launch_bounds__(kMuonThreads)
    muon_direction_kernel(MuonMomentum<M> of, MuonFactors factors, const float* divisor, const float* found_inf,
                          int64_t count) {
  const int64_t begin = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kGroup;
  if (begin >= count || *found_inf != 0) return;  // whole warps: count is a multiple of what one has
  const float inverse_divisor = 1 / *divisor;
  const Group gradient =
      of.gradients ? load<true>(of.gradients + begin, kGroup) : load<true>(of.rounded_gradients + begin, kGroup);
  Group momentum = load_momentum(of, begin), direction;
  for (int i = 0; i < kGroup; ++i) {
    float& m = momentum.values[i];
    const float g = gradient.values[i] * inverse_divisor;
    m += factors.new_in_momentum * (g - m);
    direction.values[i] = g + factors.momentum_in_direction * (m - g);
  }
  store_momentum(of, begin, momentum);
  of.direction ? store<true>(direction, of.direction + begin, kGroup)
               : store<true>(direction, of.rounded_direction + begin, kGroup);
}

// The update's numbers on the device.
struct MuonNumbers {
  const float *learning_rate, *decay_share, *step_count, *found_inf;
  float size, weight_decay;
  bool is_cautious;

  __device__ MuonStep step() const {
    const float decay = *decay_share * weight_decay;
    return {1 - *learning_rate * decay, *learning_rate * size, static_cast<uint32_t>(*step_count), is_cautious};
  }
};

inline __global__ void __launch_bounds__(kMuonThreads)
    muon_update_kernel(MuonValues of, MuonNumbers numbers, int64_t count) {
  const int64_t begin = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kGroup;
  if (begin >= count || *numbers.found_inf != 0) return;
  const MuonStep step = numbers.step();
  const Group direction =
      of.direction ? load<true>(of.direction + begin, kGroup) : load<true>(of.rounded_direction + begin, kGroup);
  Group value = of.values ? load<true>(of.values + begin, kGroup) : load<true>(of.rounded + begin, kGroup);
  for (int i = 0; i < kGroup; ++i) {
    const bool decays = !step.is_cautious || value.values[i] * direction.values[i] >= 0;
    value.values[i] = value.values[i] * (decays ? step.kept_by_decay : 1.0f) - step.rate * direction.values[i];
  }
  if (of.values) {
    store<true>(value, of.values + begin, kGroup);
    if (of.rounded) store<true>(value, of.rounded + begin, kGroup);
  } else {
    store_at_random(value, kValueRoundingKey, of.first_block, begin, step.number, of.rounded);
  }
}

inline int64_t muon_blocks(int64_t count) { return (count / kGroup + kMuonThreads - 1) / kMuonThreads; }

// As cpu::muon_direction() and cpu::muon_update().
template <class Launch>
void muon_direction(const Launch& launch, const MuonBuffers& buffers, double momentum, const MuonScalars& scalars) {
  const int64_t count = buffers.gradients.numel();
  with_momentum(buffers, [&]<class M>(const MuonMomentum<M>& of) {
    TORCH_CHECK(are_aligned(of.gradients, of.rounded_gradients, of.momentum, of.direction, of.rounded_direction),
                "muon: the buffers must begin at multiples of 16 bytes");
    launch(muon_direction_kernel<M>, muon_blocks(count), kMuonThreads, of, muon_factors(momentum),
           read<float>(scalars.divisor), read<float>(scalars.found_inf), count);
  });
}

template <class Launch>
void muon_update(const Launch& launch, const MuonWeights& weights, const MuonRates& rates, const MuonScalars& scalars) {
  const int64_t count = weights.direction.numel();
  const MuonValues of = muon_values(weights);
  TORCH_CHECK(are_aligned(of.values, of.rounded, of.direction, of.rounded_direction),
              "muon: the buffers must begin at multiples of 16 bytes");
  const MuonNumbers numbers{.learning_rate = read<float>(scalars.learning_rate),
                            .decay_share = read<float>(scalars.decay_share),
                            .step_count = read<float>(scalars.step_count),
                            .found_inf = read<float>(scalars.found_inf),
                            .size = static_cast<float>(rates.size),
                            .weight_decay = static_cast<float>(rates.weight_decay),
                            .is_cautious = rates.is_cautious};
  launch(muon_update_kernel, muon_blocks(count), kMuonThreads, of, numbers, count);
}

}  // namespace gpt::ops::cuda
