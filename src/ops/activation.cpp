#include "gpt/ops/activation.h"

#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <optional>
#include <utility>

#include "dropout.h"
#include "gelu_gradient.h"
#include "kept.h"
#include "kernels.h"
#include "repeat.h"
#include "row_sums.h"

namespace gpt::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct AppliedActivation {
  Activation activation;
  Dropout dropout;
  std::shared_ptr<RowSums> of_x = nullptr, of_in = nullptr;  // what layers want of the gradients
  std::shared_ptr<GeluGradient> by_layer = nullptr;          // the gradient of x, where the next layer has computed it
};

at::Tensor compute(const AppliedActivation& applied, const at::Tensor& x, const at::Tensor& in) {
  const at::Tensor y = at::empty_like(x);
  kernels_of(x)->activation(applied.activation, applied.dropout, x, in, y);
  return y;
}

struct Activate : torch::autograd::Function<Activate> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& gated,
                            Activation activation, const Dropout& dropout, const at::Tensor* computed) {
    const at::Tensor in = gated.value_or(at::Tensor());
    const bool is_gelu = activation == Activation::gelu && !in.defined();
    const AppliedActivation applied{activation, dropout, wanted_row_sums(x), wanted_row_sums(in),
                                    is_gelu ? std::make_shared<GeluGradient>() : nullptr};
    context->save_for_backward({x, in});
    keep(*context, applied);
    return computed ? *computed : compute(applied, x, in);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &in = saved[1];
    const auto& [activation, dropout, of_x, of_in, by_layer] = kept<AppliedActivation>(*context);
    if (by_layer && by_layer->gradient.defined()) {
      const GeluGradient written = std::exchange(*by_layer, {});
      TORCH_CHECK(
          written.gradient.is_same(gradients[0]),
          "activation: a layer has multiplied its gradient by GELU's slope, but it is not the only one that took the result");
      give_row_sums(of_x, written.gradient, written.sums);
      return {written.gradient, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
    }
    const at::Tensor x_gradient = at::empty_like(x), in_gradient = in.defined() ? at::empty_like(in) : at::Tensor();
    const at::Tensor sums = kernels_of(x)->activation_backward(activation, dropout, x, in, gradients[0].contiguous(),
                                                               x_gradient, in_gradient, of_x || of_in);
    if (sums.defined()) {
      give_row_sums(of_x, x_gradient, sums.select(1, 0));
      give_row_sums(of_in, in_gradient, sums.select(1, 1));
    }
    return {x_gradient, in_gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor activate(Activation activation, const at::Tensor& x) {
  check_kernel_type("activation", x);
  return Activate::apply(x.contiguous(), std::nullopt, activation, Dropout(), nullptr);
}

at::Tensor activated(Activation activation, const at::Tensor& x, const at::Tensor& y) {
  check_kernel_type("activation", x);
  TORCH_CHECK(x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() && x.is_contiguous() && y.is_contiguous(),
              "activation: ", y.sizes(), " of type ", y.scalar_type(), " was not computed from ", x.sizes(),
              " of type ", x.scalar_type());
  return Activate::apply(x, std::nullopt, activation, Dropout(), &y);
}

at::Tensor activate_gated(Activation activation, const at::Tensor& gate, const at::Tensor& in,
                          const DropoutSpec& dropout) {
  check_kernel_type("activation", gate);
  TORCH_CHECK(gate.sizes() == in.sizes() && gate.scalar_type() == in.scalar_type() && gate.device() == in.device(),
              "activation: a gate of ", gate.sizes(), " and type ", gate.scalar_type(), " does not fit ", in.sizes(),
              " of type ", in.scalar_type());
  return Activate::apply(gate.contiguous(), std::optional(in.contiguous()), activation,
                         dropout_of(dropout, gate, rows_of_sample(gate)), nullptr);
}

Repeat repeat_activation(const at::Tensor& y) {
  const auto node = std::dynamic_pointer_cast<torch::autograd::CppNode<Activate>>(y.grad_fn());
  if (!node) return {};
  return [node] {
    const auto saved = node->ctx_.get_saved_variables();
    return compute(kept<AppliedActivation>(node->ctx_), saved[0], saved[1]);
  };
}

std::optional<GeluSource> claim_gelu(const at::Tensor& y) {
  const auto node = std::dynamic_pointer_cast<torch::autograd::CppNode<Activate>>(y.grad_fn());
  if (!node) return std::nullopt;
  const auto& by_layer = kept<AppliedActivation>(node->ctx_).by_layer;
  if (!by_layer || std::exchange(by_layer->is_claimed, true)) return std::nullopt;
  return GeluSource{[node] { return node->ctx_.get_saved_variables()[0]; }, by_layer};
}

void gelu_backward(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& sums) {
  const at::Tensor parts =
      kernels_of(x)->activation_backward(Activation::gelu, Dropout(), x, /*in=*/{}, gradient, gradient,
                                         /*in_gradient=*/{}, /*sums_rows=*/true);
  sums.copy_(parts.defined() ? parts.select(1, 0).sum(0) : gradient.sum(0, /*keepdim=*/false, at::kFloat));
}

void gelu_out(const at::Tensor& x, const at::Tensor& y) {
  kernels_of(x)->activation(Activation::gelu, Dropout(), x, /*in=*/{}, y);
}

}  // namespace gpt::ops
