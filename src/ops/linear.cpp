#include "gpt/ops/linear.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>
#include <vector>

#include "gpt/ops/activation.h"
#include "gpt/ops/part.h"
#include "gpt/ops/tuned_product.h"
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

struct LinearResult {
  at::Tensor* gelu = nullptr;  // as of product_with_bias()
  bool counts = true;          // false: only the backward pass does
};

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& /*of autograd*/,
                            const std::optional<at::Tensor>& bias, const Parameter& parameter, MatrixLibrary library,
                            ProductInput input, LinearResult result) {
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
    if (!result.counts) return at::zeros({}, rows.options()).expand(shape);
    return product_with_bias(rows, weight, b, library, result.gelu).view(shape);
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
    result[2] = accumulate_product(Parameter::from_capsule(context->saved_data["parameter"]), gradient, rows, library,
                                   context->saved_data["bias"].toBool());
    return result;
  }
};

at::Tensor apply(const at::Tensor& x, const Parameter& weight, const at::Tensor& bias, ProductInput input,
                 const LinearResult& result) {
  TORCH_CHECK(weight.value().dim() == 2 && x.size(-1) == weight.value().size(1), "linear: x ", x.sizes(),
              " does not fit weight ", weight.value().sizes());
  const MatrixLibrary library = product_library(x);
  // Where a tuned product is computed again in the backward pass, it must be the same one.
  if (library == MatrixLibrary::aten && !at::GradMode::is_enabled() && !tunes_products(x))
    return at::linear(x, weight.compute_value(), bias);
  return Linear::apply(x, weight.value(), bias.defined() ? std::optional(bias) : std::nullopt, weight, library, input,
                       result);
}

}  // namespace

at::Tensor cpu::linear(const at::Tensor& x, const Parameter& weight, const at::Tensor& bias, MatrixLibrary library) {
  TORCH_CHECK(x.is_cpu() && x.scalar_type() == at::kFloat, "linear: takes float32 on the CPU, got ", x.scalar_type(),
              " on ", x.device());
  return Linear::apply(x, weight.value(), bias.defined() ? std::optional(bias) : std::nullopt, weight, library,
                       ProductInput::keep, LinearResult());
}

at::Tensor linear(const at::Tensor& x, const Parameter& weight, const at::Tensor& bias, ProductInput input) {
  return apply(x, weight, bias, input, {});
}

at::Tensor linear_for_backward(const at::Tensor& x, const Parameter& weight, const at::Tensor& bias) {
  return apply(x, weight, bias, ProductInput::keep, {.counts = false});
}

at::Tensor linear_gelu(const at::Tensor& x, const Parameter& weight, const at::Tensor& bias, ProductInput input) {
  at::Tensor y, gelu;
  {
    const InPart part(part::kProducts);
    y = apply(x, weight, bias, input, {.gelu = &gelu});
  }
  const InPart part(part::kActivation);
  return gelu.defined() ? activated(Activation::gelu, y, gelu.view(y.sizes())) : activate(Activation::gelu, y);
}

}  // namespace gpt::ops
