// Loss scaling for float16 (Micikevicius et al., 2018), entirely on the device: scale and growth tracker are tensors, so a
// skipped step costs no host synchronization. When disabled, it scales nothing but still detects non-finite gradients.
#pragma once

#include <ATen/core/Tensor.h>

namespace gpt {

class GradScaler {
 public:
  GradScaler(bool enabled, at::Device device);
  bool enabled() const { return enabled_; }
  at::Tensor scale(const at::Tensor& loss) const;
  // Divides the gradients (a flat buffer) by the scale in place; returns found_inf, a float32 scalar: 1 when any was not finite.
  at::Tensor unscale(const at::Tensor& gradients) const;
  void update(const at::Tensor& found_inf);  // halve after an overflow, double after 2,000 good steps

  // State, undefined when disabled.
  at::Tensor scale_value() const { return scale_; }              // float32 scalar
  at::Tensor growth_tracker() const { return growth_tracker_; }  // int32 scalar
  void load(const at::Tensor& scale, const at::Tensor& growth_tracker);

 private:
  bool enabled_;
  at::Tensor scale_, growth_tracker_;
};

}  // namespace gpt
