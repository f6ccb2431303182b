// From tensors to adamw_values.h.
#pragma once

#include "adamw_values.h"
#include "gpt/ops/adamw.h"
#include "rows_of.h"

namespace gpt::ops {

template <class R>
AdamWValues<R> adamw_values(const AdamWBuffers& of) {
  return {.values = write<float>(of.values),
          .gradients = read<float>(of.gradients),
          .exp_avg = write<float>(of.exp_avg),
          .exp_avg_sq = write<float>(of.exp_avg_sq),
          .rounded = write<R>(of.rounded),
          .decays = read<uint8_t>(of.decays)};
}

inline AdamWFactors adamw_factors(const AdamWRates& rates) {
  return {.new_in_exp_avg = static_cast<float>(1 - rates.beta1),
          .old_in_exp_avg_sq = static_cast<float>(rates.beta2),
          .new_in_exp_avg_sq = static_cast<float>(1 - rates.beta2),
          .eps = static_cast<float>(rates.eps)};
}

}  // namespace gpt::ops
