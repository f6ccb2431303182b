// The arithmetic of a verdict, for the host and for a GPU.
#pragma once

#include <c10/macros/Macros.h>

#include <cstdint>

#include "gpt/ops/verdict.h"

namespace gpt::ops {

// Pointers to the scalars of judge(); scale and tokens may be null.
struct VerdictScalars {
  const float *loss, *norm, *scale, *tokens;
  float max_norm;
  float *grad_norm, *skipped, *divisor;
  int64_t *skips, *skips_in_a_row;
  double *loss_sum, *token_sum;
};

inline VerdictScalars scalars_of(const Evidence& evidence, double max_norm, const Verdict& verdict,
                                 const UpdateCounts& counts) {
  return {.loss = evidence.loss.const_data_ptr<float>(),
          .norm = evidence.norm.const_data_ptr<float>(),
          .scale = evidence.scale.defined() ? evidence.scale.const_data_ptr<float>() : nullptr,
          .tokens = evidence.tokens.defined() ? evidence.tokens.const_data_ptr<float>() : nullptr,
          .max_norm = static_cast<float>(max_norm),
          .grad_norm = verdict.grad_norm.data_ptr<float>(),
          .skipped = verdict.skipped.data_ptr<float>(),
          .divisor = verdict.divisor.data_ptr<float>(),
          .skips = counts.skipped.data_ptr<int64_t>(),
          .skips_in_a_row = counts.skipped_in_a_row.data_ptr<int64_t>(),
          .loss_sum = counts.loss_sum.data_ptr<double>(),
          .token_sum = counts.token_sum.data_ptr<double>()};
}

C10_HOST_DEVICE inline void judge(const VerdictScalars& of) {
  const float loss = *of.loss, scale = of.scale ? *of.scale : 1, norm = *of.norm / scale;
  const bool is_finite = loss - loss == 0 && norm - norm == 0;  // infinity minus itself is no number
  const float over = of.max_norm > 0 ? (norm + 1e-6f) / of.max_norm : 1;
  *of.grad_norm = norm;
  *of.skipped = is_finite ? 0 : 1;
  *of.divisor = scale * (over > 1 ? over : 1);
  *of.skips += is_finite ? 0 : 1;
  *of.skips_in_a_row = is_finite ? 0 : *of.skips_in_a_row + 1;
  if (!is_finite) return;
  const double tokens = of.tokens ? *of.tokens : 1;
  *of.loss_sum += tokens * loss;
  *of.token_sum += tokens;
}

}  // namespace gpt::ops
