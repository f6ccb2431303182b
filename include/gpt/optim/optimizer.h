// What changes the parameters from their gradients, and remembers something from update to update. Which tensors it remembers is its own
// (optimizer_state.h): a parameter may have some of them or none.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "gpt/optim/optimizer_state.h"

namespace gpt::optim {

// What differs between updates: float32 scalars on the device, so that nothing waits for it.
struct UpdateScalars {
  at::Tensor learning_rate;
  at::Tensor decay_share;  // of the weight decay, as of ScheduledRates
  at::Tensor grad_scale;   // divides the gradients, so that clipping needs no pass of its own
  at::Tensor found_inf;    // 1: nothing changes, not even the step count or what is remembered
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One update from the parameters' gradients, and of the values' 16-bit copies.
  virtual void step(const UpdateScalars& scalars) = 0;

  // What it remembers, in the order of the flat buffer: of all parameters that are trained, or of the spans that were given to it. The memory in use.
  virtual const std::vector<StateStretch>& stretches() const = 0;
  virtual OptimizerState state() const = 0;  // views of it, where it is of all parameters
  // Copies the state of all parameters into that memory, which stays where it is. Throws gpt::Error(checkpoint) when the state is not that
  // of these parameters.
  virtual void load(const OptimizerState& state) = 0;

  virtual const at::Tensor& step_count() const = 0;  // float32 scalar: applied updates
  virtual StateBytes bytes() const = 0;
};

}  // namespace gpt::optim
