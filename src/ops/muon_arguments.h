// From tensors to muon_values.h.
#pragma once

#include "gpt/ops/muon.h"
#include "muon_values.h"
#include "row_arguments.h"

namespace gpt::ops {

inline bool is_bfloat16(const at::Tensor& x) { return x.scalar_type() == at::kBFloat16; }

// work.operator()<M>(MuonMomentum<M>) for the type of the momentum
template <class Work>
void with_momentum(const MuonBuffers& of, const Work& work) {
  const auto call = [&]<class M>() {
    const bool is_rounded = is_bfloat16(of.gradients), has_rounded = is_bfloat16(of.direction);
    work.template operator()<M>(
        MuonMomentum<M>{.gradients = is_rounded ? nullptr : read<float>(of.gradients),
                        .rounded_gradients = is_rounded ? read<c10::BFloat16>(of.gradients) : nullptr,
                        .momentum = write<M>(of.momentum),
                        .momentum_max = write<float>(of.momentum_max),
                        .direction = has_rounded ? nullptr : write<float>(of.direction),
                        .rounded_direction = has_rounded ? write<c10::BFloat16>(of.direction) : nullptr});
  };
  switch (of.momentum.scalar_type()) {
    case at::kByte: return call.template operator()<uint8_t>();
    case at::kBFloat16: return call.template operator()<c10::BFloat16>();
    default: return call.template operator()<float>();
  }
}

inline MuonValues muon_values(const MuonWeights& of) {
  const bool is_rounded = is_bfloat16(of.direction);
  return {.values = write<float>(of.values),
          .rounded = write<c10::BFloat16>(of.rounded),
          .direction = is_rounded ? nullptr : read<float>(of.direction),
          .rounded_direction = is_rounded ? read<c10::BFloat16>(of.direction) : nullptr,
          .first_block = of.first_block};
}

inline MuonFactors muon_factors(double momentum) {
  return {.new_in_momentum = static_cast<float>(1 - momentum), .momentum_in_direction = static_cast<float>(momentum)};
}

}  // namespace gpt::ops
