#include "gpt/model/recompute.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <utility>
#include <vector>

#include "gpt/device/precision.h"
#include "gpt/device/random_state.h"

namespace gpt::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Body = RecomputedBody;

// What the second run needs to repeat the first one.
struct Replay : torch::CustomClassHolder {
  Body body;
  at::Device device = at::kCPU;
  at::Tensor random_state;  // undefined where nothing is drawn
  at::ScalarType compute_type = at::kFloat;
};

struct Recompute : torch::autograd::Function<Recompute> {
  static at::Tensor forward(AutogradContext* context, at::TensorList inputs, const Body& body, bool draws) {
    auto replay = c10::make_intrusive<Replay>();
    const at::Device device = inputs[0].device();
    replay->body = body;
    replay->device = device;
    if (draws) replay->random_state = gpt::device::random_state(device);
    if (at::autocast::is_autocast_enabled(device.type())) {
      replay->compute_type = at::autocast::get_autocast_dtype(device.type());
    }
    context->saved_data["replay"] = c10::IValue::make_capsule(std::move(replay));
    context->save_for_backward(inputs.vec());
    return body(inputs.vec(), BodyRun::first);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto capsule = context->saved_data["replay"].toCapsule();
    const auto& replay = static_cast<const Replay&>(*capsule);
    variable_list inputs = context->get_saved_variables();
    for (at::Tensor& x : inputs) x = x.detach().requires_grad_();
    const at::Tensor& earlier = replay.random_state;
    const at::Tensor later = earlier.defined() ? gpt::device::random_state(replay.device) : at::Tensor();
    if (earlier.defined()) device::set_random_state(replay.device, earlier);
    at::Tensor y;
    {
      at::AutoGradMode gradients_on(true);
      device::Autocast autocast(replay.device, replay.compute_type);
      y = replay.body(inputs, BodyRun::again);
    }
    if (later.defined()) device::set_random_state(replay.device, later);
    torch::autograd::backward({y}, {gradients[0]});
    variable_list result;
    for (const at::Tensor& x : inputs) result.push_back(x.grad());
    result.resize(inputs.size() + 2);  // none of body and draws
    return result;
  }
};

bool is_product_of_a_block(layout::ParameterRole role) {
  using enum layout::ParameterRole;
  return role == attention_in || role == attention_out || role == mlp_in || role == mlp_gate || role == mlp_out;
}

// As block_walk.cpp does it. Nobody needs the values that the last product of a block would give again.
bool is_done_again(layout::ParameterRole role, GradientCheckpointing level) {
  if (level < GradientCheckpointing::selective || role == layout::ParameterRole::mlp_out) return false;
  return level == GradientCheckpointing::block || role != layout::ParameterRole::attention_in;
}

}  // namespace

int times_multiplied(const layout::ParameterRow& row, GradientCheckpointing level) {
  if (!is_product_of_a_block(row.role) || row.is_bias) return 0;
  return is_done_again(row.role, level) ? 4 : 3;
}

double weights_multiplied(const ModelConfig& model, GradientCheckpointing level) {
  double result = 0;
  for (const layout::ParameterRow& row : layout::parameter_table(model))
    result += static_cast<double>(row.count()) * times_multiplied(row, level);
  return result;
}

bool recomputing_draws(GradientCheckpointing level, const ModelConfig& model, const ops::Draws& draws) {
  if (model.dropout == 0 || level < GradientCheckpointing::selective) return false;
  return draws.others || (draws.attention && level == GradientCheckpointing::block);
}

at::Tensor recompute_in_backward(const Body& body, const std::vector<at::Tensor>& inputs, bool draws) {
  return Recompute::apply(at::TensorList(inputs), body, draws);
}

}  // namespace gpt::model
