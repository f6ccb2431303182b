#include "gpt/optim/adamw.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/zeros.h>

namespace gpt {

AdamW::AdamW(const Parameters& parameters, const OptimizerConfig& config) : parameters_(parameters), config_(config) {
  const auto options = at::TensorOptions(parameters.device());
  for (const OptimizerSlot& slot : kSlots)
    slots_.push_back(at::zeros({parameters.layout().size}, options.dtype(slot.dtype)));
  step_count_ = at::zeros({}, options.dtype(at::kFloat));
}

std::vector<AdamW::Group> AdamW::make_groups(const at::Tensor& gradients) const {
  std::vector<Group> groups(2);
  groups[0].weight_decay = config_.weight_decay;
  for (const auto& [begin, end, decays] : decay_ranges(parameters_.rows(), parameters_.layout())) {
    Group& group = groups[decays ? 0 : 1];
    const auto stretch = [begin, end](const at::Tensor& flat) { return flat.detach().slice(0, begin, end); };
    group.values.push_back(stretch(parameters_.flat_values()));
    group.gradients.push_back(stretch(gradients));
    group.exp_avg.push_back(stretch(slots_[0]));
    group.exp_avg_sq.push_back(stretch(slots_[1]));
    group.step_counts.push_back(step_count_);
  }
  std::erase_if(groups, [](const Group& group) { return group.values.empty(); });
  return groups;
}

void AdamW::step(const at::Tensor& learning_rate, const at::Tensor& grad_scale, const at::Tensor& found_inf) {
  at::NoGradGuard no_grad;
  const at::Tensor& gradients = parameters_.flat_gradients();
  if (groups_.empty()) groups_ = make_groups(gradients);
  if (config_.fused_adamw) {
    step_fused(learning_rate, grad_scale, found_inf);
  } else if (found_inf.item<float>() == 0) {  // sync: operators that write cannot be skipped on the device
    step_by_operators(learning_rate, grad_scale);
  }
  parameters_.round_values();
}

void AdamW::step_fused(const at::Tensor& learning_rate, const at::Tensor& grad_scale, const at::Tensor& found_inf) {
  step_count_.add_(1);
  for (Group& group : groups_) {
    at::_fused_adamw_(group.values, group.gradients, group.exp_avg, group.exp_avg_sq, /*max_exp_avg_sqs=*/{},
                      group.step_counts, learning_rate, config_.beta1, config_.beta2, group.weight_decay, config_.eps,
                      /*amsgrad=*/false, /*maximize=*/false, grad_scale, found_inf);
  }
  step_count_.sub_(found_inf);  // the kernel changed nothing where it is 1
}

void AdamW::step_by_operators(const at::Tensor& learning_rate, const at::Tensor& grad_scale) {
  const double beta1 = config_.beta1, beta2 = config_.beta2;
  step_count_.add_(1);
  const at::Tensor correction1 = 1 - at::pow(beta1, step_count_), correction2 = 1 - at::pow(beta2, step_count_);
  for (const Group& group : groups_) {
    for (size_t i = 0; i < group.values.size(); ++i) {
      const at::Tensor gradient = group.gradients[i] / grad_scale;
      const at::Tensor &value = group.values[i], &exp_avg = group.exp_avg[i], &exp_avg_sq = group.exp_avg_sq[i];
      value.mul_(1 - learning_rate * group.weight_decay);
      exp_avg.mul_(beta1).add_(gradient, 1 - beta1);
      exp_avg_sq.mul_(beta2).addcmul_(gradient, gradient, 1 - beta2);
      const at::Tensor divisor = (exp_avg_sq / correction2).sqrt_().add_(config_.eps);
      value.sub_(exp_avg / divisor * (learning_rate / correction1));
    }
  }
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
