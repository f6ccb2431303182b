#include "gpt/model/recompute.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <utility>

#include "gpt/device/precision.h"
#include "gpt/device/random_state.h"

namespace gpt {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Body = std::function<at::Tensor(const at::Tensor&)>;

// What the second run needs to repeat the first one.
struct Replay : torch::CustomClassHolder {
  Body body;
  at::Device device = at::kCPU;
  at::Tensor random_state;  // undefined where nothing is drawn
  at::ScalarType compute_type = at::kFloat;
};

struct Recompute : torch::autograd::Function<Recompute> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Body& body, bool draws) {
    auto replay = c10::make_intrusive<Replay>();
    replay->body = body;
    replay->device = x.device();
    if (draws) replay->random_state = gpt::random_state(x.device());
    if (at::autocast::is_autocast_enabled(x.device().type())) {
      replay->compute_type = at::autocast::get_autocast_dtype(x.device().type());
    }
    context->saved_data["replay"] = c10::IValue::make_capsule(std::move(replay));
    context->save_for_backward({x});
    return body(x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto capsule = context->saved_data["replay"].toCapsule();
    const auto& replay = static_cast<const Replay&>(*capsule);
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    const at::Tensor& earlier = replay.random_state;
    const at::Tensor later = earlier.defined() ? gpt::random_state(replay.device) : at::Tensor();
    if (earlier.defined()) set_random_state(replay.device, earlier);
    at::Tensor y;
    {
      at::AutoGradMode gradients_on(true);
      Autocast autocast(replay.device, replay.compute_type);
      y = replay.body(x);
    }
    if (later.defined()) set_random_state(replay.device, later);
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor recompute_in_backward(const Body& body, const at::Tensor& x, bool draws) {
  return Recompute::apply(x, body, draws);
}

}  // namespace gpt
