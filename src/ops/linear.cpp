#include "gpt/ops/linear.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>
#include <vector>

#include "kept.h"
#include "repeat.h"

namespace gpt::ops {
namespace {

using cpu::MatrixLibrary;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Repeat repeat_of(const at::Tensor& x) {
  Repeat repeat = repeat_norm(x);
  return repeat ? repeat : repeat_activation(x);
}

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& /*of autograd*/,
                            const std::optional<at::Tensor>& bias, const Parameter& parameter, MatrixLibrary library,
                            ProductInput input, bool value_counts) {
    const at::Tensor rows = in_product_type(x.reshape({-1, x.size(-1)})),  // (M, K)
        weight = in_product_type(parameter.compute_value()),               // (N, K)
        b = bias ? in_product_type(*bias) : at::Tensor();
    Repeat repeat = input == ProductInput::repeat ? repeat_of(x) : Repeat();
    context->save_for_backward({repeat ? at::Tensor() : rows, weight});
    keep(*context, std::move(repeat));
    context->saved_data["parameter"] = parameter.to_capsule();
    context->saved_data["library"] = static_cast<int64_t>(library);
    context->saved_data["bias"] = b.defined() && bias->requires_grad();
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = weight.size(0);
    if (!value_counts) return at::zeros({}, rows.options()).expand(shape);
    if (library == MatrixLibrary::aten) return at::linear(rows, weight, b).view(shape);  // (M, N)
    at::Tensor y = product(rows, weight.t(), library);
    if (b.defined()) y.add_(b);
    return y.view(shape);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& weight = saved[1];
    const auto& repeat = kept<Repeat>(*context);
    const at::Tensor rows = repeat ? repeat().reshape({-1, weight.size(1)}).to(weight.scalar_type()) : saved[0];
    const auto library = static_cast<MatrixLibrary>(context->saved_data["library"].toInt());
    const at::Tensor gradient = gradients[0].reshape({-1, weight.size(0)});  // (M, N)
    variable_list result(7);
    if (context->needs_input_grad(0)) {
      std::vector<int64_t> shape = gradients[0].sizes().vec();
      shape.back() = weight.size(1);
      result[0] = product(gradient, weight, library).view(shape);
    }
    accumulate_product(Parameter::from_capsule(context->saved_data["parameter"]), gradient, rows, library);
    if (context->saved_data["bias"].toBool()) result[2] = gradient.sum(0);
    return result;
  }
};

void check_fit(const at::Tensor& x, const Parameter& weight) {
  TORCH_CHECK(weight.value().dim() == 2 && x.size(-1) == weight.value().size(1), "linear: x ", x.sizes(),
              " does not fit weight ", weight.value().sizes());
}

std::optional<at::Tensor> optional_bias(const at::Tensor& bias) {
  return bias.defined() ? std::optional(bias) : std::nullopt;
}

}  // namespace

at::Tensor cpu::linear(const at::Tensor& x, const Parameter& weight, const at::Tensor& bias, MatrixLibrary library) {
  TORCH_CHECK(x.is_cpu() && x.scalar_type() == at::kFloat, "linear: takes float32 on the CPU, got ", x.scalar_type(),
              " on ", x.device());
  return Linear::apply(x, weight.value(), optional_bias(bias), weight, library, ProductInput::keep,
                       /*value_counts=*/true);
}

at::Tensor linear(const at::Tensor& x, const Parameter& weight, const at::Tensor& bias, ProductInput input) {
  check_fit(x, weight);
  const MatrixLibrary library = product_library(x);
  if (library == MatrixLibrary::aten && !at::GradMode::is_enabled()) return at::linear(x, weight.compute_value(), bias);
  return Linear::apply(x, weight.value(), optional_bias(bias), weight, library, input, /*value_counts=*/true);
}

at::Tensor linear_for_backward(const at::Tensor& x, const Parameter& weight, const at::Tensor& bias) {
  check_fit(x, weight);
  return Linear::apply(x, weight.value(), optional_bias(bias), weight, product_library(x), ProductInput::keep,
                       /*value_counts=*/false);
}

}  // namespace gpt::ops
