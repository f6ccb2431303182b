// One update of AdamW (Loshchilov and Hutter, 2019) over flat buffers, in one pass that also divides the gradients and rounds the
// 16-bit copies of the values.
#pragma once

#include <ATen/core/Tensor.h>

namespace gpt::ops {

// (n) float32, n being a multiple of kParameterAlignment.
struct AdamWBuffers {
  at::Tensor values, gradients, exp_avg, exp_avg_sq;
  // (n) of 16 bits, on a CPU bfloat16: set to the new values, rounded. Undefined: there are no copies.
  at::Tensor rounded;
  at::Tensor decays;  // (n / kParameterAlignment) uint8: 1 where weight decay applies
};

struct AdamWRates {
  double beta1, beta2, eps, weight_decay;
};

// float32 scalars on the buffers' device, none of which is read by the host where that is a GPU.
struct AdamWScalars {
  at::Tensor learning_rate;
  at::Tensor step_count;  // of this update, from 1
  at::Tensor divisor;     // of the gradients
  at::Tensor found_inf;   // 1: nothing changes
};

// With g = gradient / divisor and t = step_count, all in float32:
//   m += (1 - beta1) (g - m)        v = beta2 v + (1 - beta2) g^2
//   value = value (1 - learning_rate decay) - learning_rate m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)
void adamw(const AdamWBuffers& buffers, const AdamWRates& rates, const AdamWScalars& scalars);

}  // namespace gpt::ops
