// One update of AdamW (Loshchilov and Hutter, 2019) over flat buffers, in one pass that also divides the gradients and rounds the
// 16-bit copies of the values. Values, gradients and moments may be kept in fewer bits; the arithmetic is that of float32.
#pragma once

#include <ATen/core/Tensor.h>

namespace gpt::ops {

// n is a multiple of kParameterAlignment. The moments and their maxima may be host memory that the device's kernels can access
// (zeros_on_host() of device/memory.h).
struct AdamWBuffers {
  at::Tensor values;               // (n) float32; undefined where `rounded` is all there is of them
  at::Tensor gradients;            // (n) float32 or bfloat16
  at::Tensor exp_avg, exp_avg_sq;  // (n) float32, bfloat16, or uint8: codes of ops/moments.h
  at::Tensor rounded;              // (n) bfloat16: set to the new values, rounded. Undefined: there are only `values`
  at::Tensor decays;               // (n / kParameterAlignment) uint8: 1 where weight decay applies
  // (n / kParameterAlignment) float32: the largest magnitudes of blocks of codes. Undefined without codes.
  at::Tensor exp_avg_max = {}, exp_avg_sq_max = {};
  int64_t first_block = 0;  // in units of kParameterAlignment: where the buffers begin among all parameters
};

struct AdamWRates {
  double beta1, beta2, eps, weight_decay;
  bool is_cautious = false;  // weight decay only where value and m have the same sign (Chen et al., 2025)
};

// float32 scalars on the buffers' device, none of which is read by the host where that is a GPU.
struct AdamWScalars {
  at::Tensor learning_rate;
  at::Tensor decay_share;  // what the weight decay is multiplied by
  at::Tensor step_count;   // the number of this update, from 1
  at::Tensor divisor;      // what the gradients are divided by
  at::Tensor found_inf;    // 1: nothing changes
};

// With g = gradient / divisor and t = step_count, all in float32:
//   m += (1 - beta1) (g - m)        v = beta2 v + (1 - beta2) g^2
//   value = value (1 - learning_rate decay_share decay) - learning_rate m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)
// The value is computed from m and v as they are before they are rounded. In bfloat16, m is rounded to nearest, and so is `rounded`
// beside values of float32. v and a value that is bfloat16 alone go up or down at random, so that they are right on average: to
// nearest, a beta2 of 0.999 would not change v any more, nor most updates a value. What is random follows from t and the place among all
// parameters, on each kind of device in its own way.
void adamw(const AdamWBuffers& buffers, const AdamWRates& rates, const AdamWScalars& scalars);

}  // namespace gpt::ops
