#include "gpt/optim/adamw.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/zeros.h>

#include "gpt/ops/adamw.h"

namespace gpt {

AdamW::AdamW(const Parameters& parameters, const OptimizerConfig& config) : parameters_(parameters), config_(config) {
  const auto options = at::TensorOptions(parameters.device());
  for (const OptimizerSlot& slot : kSlots)
    slots_.push_back(at::zeros({parameters.layout().size}, options.dtype(slot.dtype)));
  decays_ = at::zeros({parameters.layout().size / kParameterAlignment}, options.dtype(at::kByte));
  for (const auto& [begin, end, decays] : decay_ranges(parameters.rows(), parameters.layout()))
    if (decays) decays_.slice(0, begin / kParameterAlignment, aligned_end(end) / kParameterAlignment).fill_(1);
  step_count_ = at::zeros({}, options.dtype(at::kFloat));
}

void AdamW::step(const at::Tensor& learning_rate, const at::Tensor& grad_scale, const at::Tensor& found_inf) {
  at::NoGradGuard no_grad;
  if (config_.fused_adamw) {
    step_fused(learning_rate, grad_scale, found_inf);
  } else if (found_inf.item<float>() == 0) {  // sync: operators that write cannot be skipped on the device
    step_by_operators(learning_rate, grad_scale);
  }
}

void AdamW::step_fused(const at::Tensor& learning_rate, const at::Tensor& grad_scale, const at::Tensor& found_inf) {
  const at::Tensor& gradients = parameters_.flat_gradients();
  step_count_.add_(1);
  ops::adamw({parameters_.flat_values(), gradients, slots_[0], slots_[1], parameters_.flat_rounded(), decays_},
             {config_.beta1, config_.beta2, config_.eps, config_.weight_decay},
             {learning_rate, step_count_, grad_scale, found_inf});
  step_count_.sub_(found_inf);  // the kernel changed nothing where it is 1
}

void AdamW::step_by_operators(const at::Tensor& learning_rate, const at::Tensor& grad_scale) {
  const double beta1 = config_.beta1, beta2 = config_.beta2;
  const at::Tensor& gradients = parameters_.flat_gradients();
  step_count_.add_(1);
  const at::Tensor correction1 = 1 - at::pow(beta1, step_count_), correction2 = 1 - at::pow(beta2, step_count_);
  for (const auto& [begin, end, decays] : decay_ranges(parameters_.rows(), parameters_.layout())) {
    const auto stretch = [begin, end](const at::Tensor& flat) { return flat.slice(0, begin, end); };
    const at::Tensor gradient = stretch(gradients) / grad_scale, value = stretch(parameters_.flat_values()),
                     exp_avg = stretch(slots_[0]), exp_avg_sq = stretch(slots_[1]);
    value.mul_(1 - learning_rate * (decays ? config_.weight_decay : 0));
    exp_avg.mul_(beta1).add_(gradient, 1 - beta1);
    exp_avg_sq.mul_(beta2).addcmul_(gradient, gradient, 1 - beta2);
    const at::Tensor divisor = (exp_avg_sq / correction2).sqrt_().add_(config_.eps);
    value.sub_(exp_avg / divisor * (learning_rate / correction1));
  }
  parameters_.round_values();
}

OptimizerState AdamW::state() const {
  OptimizerState state;
  for (size_t i = 0; i < kSlots.size(); ++i) state.slots.emplace_back(kSlots[i].name, parameters_.views(slots_[i]));
  state.step_count = step_count_;
  return state;
}

void AdamW::load(const OptimizerState& from) {
  for (size_t i = 0; i < kSlots.size(); ++i)
    parameters_.copy_by_name(from.slot(kSlots[i].name), slots_[i], kSlots[i].name);
  step_count_.copy_(from.step_count);
}

}  // namespace gpt
