#include "gpt/optim/adamw.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

namespace gpt {
namespace {

NamedTensors named_as(const NamedTensors& names, const std::vector<at::Tensor>& values) {
  NamedTensors result;
  for (size_t i = 0; i < values.size(); ++i) result.emplace_back(names[i].first, values[i]);
  return result;
}

void copy_values(const NamedTensors& names, const NamedTensors& from, const std::vector<at::Tensor>& to,
                 const char* what) {
  TORCH_CHECK(from.size() == to.size(), "AdamW: ", what, " has ", from.size(), " tensors, the model ", to.size());
  for (size_t i = 0; i < to.size(); ++i) {
    TORCH_CHECK(from[i].first == names[i].first && from[i].second.sizes() == to[i].sizes(), "AdamW: ", what, " of '",
                from[i].first, "' ", from[i].second.sizes(), " does not fit parameter '", names[i].first, "' ",
                to[i].sizes());
    to[i].copy_(from[i].second);
  }
}

}  // namespace

AdamW::AdamW(NamedTensors parameters, const AdamWOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  for (const auto& [name, parameter] : parameters_) {
    exp_avg_.push_back(at::zeros_like(parameter));
    exp_avg_sq_.push_back(at::zeros_like(parameter));
    (parameter.dim() >= 2 ? decayed_ : plain_).push_back(exp_avg_.size() - 1);
  }
  step_ = at::zeros({}, parameters_.front().second.options().dtype(at::kFloat).requires_grad(false));
}

void AdamW::step(double learning_rate, const at::Tensor& grad_scale, const at::Tensor& found_inf) {
  at::NoGradGuard no_grad;
  step_.add_(1);
  update(decayed_, learning_rate, options_.weight_decay, grad_scale, found_inf);
  update(plain_, learning_rate, 0.0, grad_scale, found_inf);
  step_.sub_(found_inf);  // the kernel changed nothing where it is 1
}

void AdamW::update(const std::vector<size_t>& group, double learning_rate, double weight_decay,
                   const at::Tensor& grad_scale, const at::Tensor& found_inf) {
  if (group.empty()) return;
  std::vector<at::Tensor> values, gradients, exp_avg, exp_avg_sq;
  for (const size_t i : group) {
    const auto& [name, parameter] = parameters_[i];
    TORCH_CHECK(parameter.grad().defined(), "AdamW: parameter '", name, "' has no gradient");
    values.push_back(parameter);
    gradients.push_back(parameter.grad());
    exp_avg.push_back(exp_avg_[i]);
    exp_avg_sq.push_back(exp_avg_sq_[i]);
  }
  const std::vector<at::Tensor> steps(group.size(), step_);  // all parameters share one count
  at::_fused_adamw_(values, gradients, exp_avg, exp_avg_sq, /*max_exp_avg_sqs=*/{}, steps, learning_rate,
                    options_.beta1, options_.beta2, weight_decay, options_.eps, /*amsgrad=*/false, /*maximize=*/false,
                    grad_scale, found_inf);
}

void AdamW::zero_grad() {
  for (auto& [name, parameter] : parameters_) parameter.mutable_grad().reset();
}

std::vector<at::Tensor> AdamW::gradients() const {
  std::vector<at::Tensor> result;
  for (const auto& [name, parameter] : parameters_) {
    if (parameter.grad().defined()) result.push_back(parameter.grad());
  }
  return result;
}

NamedTensors AdamW::exp_avg() const { return named_as(parameters_, exp_avg_); }
NamedTensors AdamW::exp_avg_sq() const { return named_as(parameters_, exp_avg_sq_); }
at::Tensor AdamW::step_count() const { return step_; }

void AdamW::load(const NamedTensors& exp_avg, const NamedTensors& exp_avg_sq, const at::Tensor& step_count) {
  copy_values(parameters_, exp_avg, exp_avg_, "exp_avg");
  copy_values(parameters_, exp_avg_sq, exp_avg_sq_, "exp_avg_sq");
  step_.copy_(step_count);
}

}  // namespace gpt
