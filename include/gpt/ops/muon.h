// The two passes of Muon (Jordan et al., 2024) over a matrix in flat buffers: before and after its update is made orthogonal. Values,
// gradients and the momentum may be kept in fewer bits; the arithmetic is that of float32.
#pragma once

#include <ATen/core/Tensor.h>

namespace gpt::ops {

// n is a multiple of kParameterAlignment. The momentum and its maxima may be host memory that the device's kernels can access
// (zeros_on_host() of device/memory.h).
struct MuonBuffers {
  at::Tensor gradients;  // (n) float32 or bfloat16
  at::Tensor momentum;   // (n) float32, bfloat16, or uint8: codes of a first moment, as in ops/moments.h
  at::Tensor momentum_max =
      {};  // (n / kParameterAlignment) float32: the largest magnitudes of blocks of codes. Undefined without
  at::Tensor direction;  // (n) float32 or bfloat16: the result
};

struct MuonWeights {
  at::Tensor values;        // (n) float32; undefined where `rounded` is all there is of them
  at::Tensor rounded;       // (n) bfloat16: set to the new values, rounded. Undefined: there are only `values`
  at::Tensor direction;     // (n) float32 or bfloat16
  int64_t first_block = 0;  // in units of kParameterAlignment: where the buffers begin among all parameters
};

struct MuonRates {
  double size;  // what the direction is multiplied by, beside the learning rate
  double weight_decay;
  bool is_cautious;  // weight decay only where value and direction have the same sign (Chen et al., 2025)
};

// float32 scalars on the buffers' device, none of which is read by the host where that is a GPU.
struct MuonScalars {
  at::Tensor learning_rate;
  at::Tensor decay_share;  // what the weight decay is multiplied by
  at::Tensor step_count;   // the number of this update, from 1
  at::Tensor divisor;      // what the gradients are divided by
  at::Tensor found_inf;    // 1: nothing changes, and the direction is not set
};

// Nesterov's momentum, with g = gradient / divisor and mu = momentum, as torch.optim.Muon has it:
//   m += (1 - mu) (g - m)        direction = g + mu (m - g)
// The direction is computed from m as it is before it is rounded, which bfloat16 does to nearest.
void muon_direction(const MuonBuffers& buffers, double momentum, const MuonScalars& scalars);

//   value = value (1 - learning_rate decay_share weight_decay) - learning_rate size direction
// A value that is bfloat16 alone goes up or down at random, as in ops/adamw.h.
void muon_update(const MuonWeights& weights, const MuonRates& rates, const MuonScalars& scalars);

}  // namespace gpt::ops
