#include "gpt/optim/adamw.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros.h>

namespace gpt {

AdamW::AdamW(const Parameters& parameters, const OptimizerConfig& config)
    : parameters_(parameters), config_(config), ranges_(decay_ranges(parameters.rows(), parameters.layout())) {
  const auto options = at::TensorOptions(parameters.device());
  for (const OptimizerSlot& slot : kSlots)
    slots_.push_back(at::zeros({parameters.layout().size}, options.dtype(slot.dtype)));
  step_count_ = at::zeros({}, options.dtype(at::kFloat));
}

void AdamW::step(const at::Tensor& learning_rate, const at::Tensor& grad_scale, const at::Tensor& found_inf) {
  at::NoGradGuard no_grad;
  const at::Tensor values = parameters_.flat_values(), gradients = parameters_.flat_gradients();
  step_count_.add_(1);
  for (const bool decays : {true, false}) {
    std::vector<at::Tensor> of_values, of_gradients, of_exp_avg, of_exp_avg_sq;
    for (const auto& [begin, end, range_decays] : ranges_) {
      if (range_decays != decays) continue;
      of_values.push_back(values.slice(0, begin, end));
      of_gradients.push_back(gradients.slice(0, begin, end));
      of_exp_avg.push_back(slots_[0].slice(0, begin, end));
      of_exp_avg_sq.push_back(slots_[1].slice(0, begin, end));
    }
    if (of_values.empty()) continue;
    const std::vector<at::Tensor> steps(of_values.size(), step_count_);  // all parameters share one count
    at::_fused_adamw_(of_values, of_gradients, of_exp_avg, of_exp_avg_sq, /*max_exp_avg_sqs=*/{}, steps, learning_rate,
                      config_.beta1, config_.beta2, decays ? config_.weight_decay : 0.0, config_.eps, /*amsgrad=*/false,
                      /*maximize=*/false, grad_scale, found_inf);
  }
  step_count_.sub_(found_inf);  // the kernel changed nothing where it is 1
}

OptimizerState AdamW::state() const {
  OptimizerState state;
  for (size_t i = 0; i < kSlots.size(); ++i) state.slots.emplace_back(kSlots[i].name, parameters_.views(slots_[i]));
  state.step_count = step_count_;
  return state;
}

void AdamW::load(const OptimizerState& from) {
  OptimizerState to = state();
  TORCH_CHECK(from.slots.size() == to.slots.size(), "AdamW: a state of ", from.slots.size(), " slots instead of ",
              to.slots.size());
  for (size_t s = 0; s < to.slots.size(); ++s) {
    const auto& [name, tensors] = to.slots[s];
    const NamedTensors& given = from.slots[s].second;
    TORCH_CHECK(from.slots[s].first == name && given.size() == tensors.size(), "AdamW: '", from.slots[s].first,
                "' with ", given.size(), " tensors instead of '", name, "' with ", tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      TORCH_CHECK(given[i].first == tensors[i].first && given[i].second.sizes() == tensors[i].second.sizes(),
                  "AdamW: ", name, " of '", given[i].first, "' ", given[i].second.sizes(), " does not fit parameter '",
                  tensors[i].first, "' ", tensors[i].second.sizes());
      tensors[i].second.copy_(given[i].second);
    }
  }
  step_count_.copy_(from.step_count);
}

}  // namespace gpt
