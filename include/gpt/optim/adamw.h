// AdamW (Loshchilov and Hutter, 2019) through ATen's fused kernel, on CPU and CUDA. Weight decay on matrices only
// (parameters with two or more dimensions). Everything that changes between steps is a device tensor, so nothing syncs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "gpt/model/named_tensors.h"

namespace gpt {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.1;
};

class AdamW {
 public:
  AdamW(NamedTensors parameters, const AdamWOptions& options);

  // One update from the parameters' gradients. `grad_scale` (float32 scalar on the device): gradients are divided by it,
  // so that clipping needs no pass of its own. `found_inf` (likewise): if it is 1, nothing changes, not even the
  // step count or the moments.
  void step(double learning_rate, const at::Tensor& grad_scale, const at::Tensor& found_inf);
  void zero_grad();  // drops the gradients (set_to_none)

  std::vector<at::Tensor> gradients() const;  // defined ones, in parameter order

  // State: per parameter exp_avg and exp_avg_sq, and the number of applied updates (a float32 scalar).
  const NamedTensors& parameters() const { return parameters_; }
  NamedTensors exp_avg() const;
  NamedTensors exp_avg_sq() const;
  at::Tensor step_count() const;
  void load(const NamedTensors& exp_avg, const NamedTensors& exp_avg_sq, const at::Tensor& step_count);

 private:
  void update(const std::vector<size_t>& group, double learning_rate, double weight_decay, const at::Tensor& grad_scale,
              const at::Tensor& found_inf);

  NamedTensors parameters_;
  AdamWOptions options_;
  std::vector<size_t> decayed_, plain_;  // indices into parameters_
  std::vector<at::Tensor> exp_avg_, exp_avg_sq_;
  at::Tensor step_;
};

}  // namespace gpt
