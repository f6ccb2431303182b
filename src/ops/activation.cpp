#include "gpt/ops/activation.h"

#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "dropout_mask.h"
#include "gpt/ops/aten.h"
#include "kernels.h"

namespace gpt::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Activate : torch::autograd::Function<Activate> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& gated,
                            Activation activation, cpu::DropoutMask dropout) {
    const at::Tensor in = gated.value_or(at::Tensor()), y = at::empty_like(x);
    cpu::activation(activation, dropout, x, in, y);
    context->save_for_backward({x, in});
    context->saved_data["activation"] = static_cast<int64_t>(activation);
    context->saved_data["key"] = static_cast<int64_t>(dropout.key);
    context->saved_data["kept"] = static_cast<int64_t>(dropout.kept_of_65536);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &in = saved[1];
    const auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
    const cpu::DropoutMask dropout{static_cast<uint64_t>(context->saved_data["key"].toInt()),
                                   static_cast<uint32_t>(context->saved_data["kept"].toInt())};
    const at::Tensor x_gradient = at::empty_like(x), in_gradient = in.defined() ? at::empty_like(in) : at::Tensor();
    cpu::activation_backward(activation, dropout, x, in, gradients[0].contiguous(), x_gradient, in_gradient);
    return {x_gradient, in_gradient, at::Tensor(), at::Tensor()};
  }
};

void check(const at::Tensor& x) {
  TORCH_CHECK(!x.is_cpu() || x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16,
              "activation: takes float32 or bfloat16 on a CPU, got ", x.scalar_type());
}

}  // namespace

at::Tensor activate(Activation activation, const at::Tensor& x) {
  check(x);
  if (!x.is_cpu()) return aten::activate(activation, x);
  return Activate::apply(x.contiguous(), std::nullopt, activation, cpu::DropoutMask{});
}

at::Tensor activate_gated(Activation activation, const at::Tensor& gate, const at::Tensor& in, double dropout) {
  check(gate);
  TORCH_CHECK(gate.sizes() == in.sizes() && gate.scalar_type() == in.scalar_type(), "activation: a gate of ",
              gate.sizes(), " and type ", gate.scalar_type(), " does not fit ", in.sizes(), " of type ",
              in.scalar_type());
  TORCH_CHECK(dropout >= 0 && dropout < 1, "activation: dropout must be in [0, 1), got ", dropout);
  if (!gate.is_cpu()) return aten::activate_gated(activation, gate, in, dropout);
  return Activate::apply(gate.contiguous(), std::optional(in.contiguous()), activation,
                         cpu::draw_dropout_mask(dropout));
}

}  // namespace gpt::ops
