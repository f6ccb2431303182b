// From tensors to adamw_values.h.
#pragma once

#include "adamw_values.h"
#include "gpt/ops/adamw.h"
#include "row_arguments.h"

namespace gpt::ops {

template <class M>
AdamWValues<M> adamw_values(const AdamWBuffers& of) {
  const bool are_rounded = of.gradients.scalar_type() == at::kBFloat16;
  return {.values = write<float>(of.values),
          .rounded = write<c10::BFloat16>(of.rounded),
          .gradients = are_rounded ? nullptr : read<float>(of.gradients),
          .rounded_gradients = are_rounded ? read<c10::BFloat16>(of.gradients) : nullptr,
          .exp_avg = write<M>(of.exp_avg),
          .exp_avg_sq = write<M>(of.exp_avg_sq),
          .decays = read<uint8_t>(of.decays),
          .exp_avg_max = write<float>(of.exp_avg_max),
          .exp_avg_sq_max = write<float>(of.exp_avg_sq_max),
          .first_block = of.first_block};
}

// work.operator()<M>() for the type of the moments
template <class Work>
void with_moment_type(const AdamWBuffers& of, const Work& work) {
  switch (of.exp_avg.scalar_type()) {
    case at::kByte: return work.template operator()<uint8_t>();
    case at::kBFloat16: return work.template operator()<c10::BFloat16>();
    default: return work.template operator()<float>();
  }
}

inline AdamWFactors adamw_factors(const AdamWRates& rates) {
  return {.new_in_exp_avg = static_cast<float>(1 - rates.beta1),
          .old_in_exp_avg_sq = static_cast<float>(rates.beta2),
          .new_in_exp_avg_sq = static_cast<float>(1 - rates.beta2),
          .eps = static_cast<float>(rates.eps),
          .is_cautious = rates.is_cautious};
}

}  // namespace gpt::ops
