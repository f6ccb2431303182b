// Loss scaling for float16 (Micikevicius et al., 2018), entirely on the device: scale and growth tracker are tensors, so a
// skipped step costs no host synchronization. The gradients keep the scale, which the optimizer's kernel divides them by beside the
// clipping. When disabled, nothing is scaled.
#pragma once

#include <ATen/core/Tensor.h>

namespace gpt::optim {

class GradScaler {
 public:
  GradScaler(bool enabled, at::Device device);
  bool enabled() const { return enabled_; }
  at::Tensor scale(const at::Tensor& x) const;  // x times the scale
  // Halves the scale after an overflow, a gradient norm that is not finite, and doubles it after 2,000 good steps.
  void update(const at::Tensor& grad_norm);

  // State, undefined when disabled.
  at::Tensor scale_value() const { return scale_; }              // float32 scalar
  at::Tensor growth_tracker() const { return growth_tracker_; }  // int32 scalar
  void load(const at::Tensor& scale, const at::Tensor& growth_tracker);

 private:
  bool enabled_;
  at::Tensor scale_, growth_tracker_;
};

}  // namespace gpt::optim
