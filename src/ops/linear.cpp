#include "gpt/ops/linear.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <utility>
#include <vector>

#include "gpt/ops/activation.h"
#include "gpt/ops/part.h"
#include "gpt/ops/tuned_product.h"
#include "kept.h"
#include "kernels.h"
#include "repeat.h"
#include "row_sums.h"

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

struct LinearContext {
  Parameter weight, bias;
  MatrixLibrary library;
  Repeat repeat;                  // of the input, where that is not saved
  std::shared_ptr<RowSums> sums;  // of the gradient, where there is a bias
};

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& /*of autograd*/,
                            const Parameter& parameter, const Parameter& bias, MatrixLibrary library,
                            ProductInput input, LinearResult result) {
    const at::Tensor rows = in_product_type(x.reshape({-1, x.size(-1)})),  // (M, K)
        weight = in_product_type(parameter.compute_value()),               // (N, K)
        b = bias.defined() ? in_product_type(bias.compute_value()) : at::Tensor();
    Repeat repeat = input == ProductInput::repeat ? repeat_of(x) : Repeat();
    context->save_for_backward({repeat ? at::Tensor() : rows, weight});
    keep(*context, LinearContext{parameter, bias, library, std::move(repeat),
                                 bias.defined() ? std::make_shared<RowSums>() : nullptr});
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = weight.size(0);
    if (!result.counts) return at::zeros({}, rows.options()).expand(shape);
    return product_with_bias(rows, weight, b, library, result.gelu).view(shape);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& weight = saved[1];
    const auto& [parameter, bias, library, repeat, sums] = kept<LinearContext>(*context);
    const at::Tensor rows = repeat ? repeat().reshape({-1, weight.size(1)}).to(weight.scalar_type()) : saved[0];
    const at::Tensor gradient = gradients[0].reshape({-1, weight.size(0)});  // (M, N)
    variable_list result(7);
    if (context->needs_input_grad(0)) {
      std::vector<int64_t> shape = gradients[0].sizes().vec();
      shape.back() = weight.size(1);
      result[0] = product(gradient, weight, library).view(shape);
    }
    accumulate_product(parameter, gradient, rows, library);
    if (!bias.defined()) return result;
    const RowSums written = std::exchange(*sums, {});
    if (written.gradient.is_same(gradients[0])) {
      kernels_of(gradient).add_row_sums({bias}, written.parts);
    } else {
      bias.add_to_gradient(gradient.sum(0));
    }
    return result;
  }
};

at::Tensor apply(const at::Tensor& x, const Parameter& weight, const Parameter& bias, ProductInput input,
                 const LinearResult& result) {
  TORCH_CHECK(weight.value().dim() == 2 && x.size(-1) == weight.value().size(1), "linear: x ", x.sizes(),
              " does not fit weight ", weight.value().sizes());
  const MatrixLibrary library = product_library(x);
  // Where a tuned product is computed again in the backward pass, it must be the same one.
  if (library == MatrixLibrary::aten && !at::GradMode::is_enabled() && !tunes_products(x))
    return at::linear(x, weight.compute_value(), bias.defined() ? bias.compute_value() : at::Tensor());
  return Linear::apply(x, weight.value(), weight, bias, library, input, result);
}

}  // namespace

std::shared_ptr<RowSums> wanted_row_sums(const at::Tensor& y) {
  if (!y.defined()) return nullptr;
  const auto node = std::dynamic_pointer_cast<torch::autograd::CppNode<Linear>>(y.grad_fn());
  return node ? kept<LinearContext>(node->ctx_).sums : nullptr;
}

at::Tensor cpu::linear(const at::Tensor& x, const Parameter& weight, const Parameter& bias, MatrixLibrary library) {
  TORCH_CHECK(x.is_cpu() && x.scalar_type() == at::kFloat, "linear: takes float32 on the CPU, got ", x.scalar_type(),
              " on ", x.device());
  return Linear::apply(x, weight.value(), weight, bias, library, ProductInput::keep, LinearResult());
}

at::Tensor linear(const at::Tensor& x, const Parameter& weight, const Parameter& bias, ProductInput input) {
  return apply(x, weight, bias, input, {});
}

at::Tensor linear_for_backward(const at::Tensor& x, const Parameter& weight, const Parameter& bias) {
  return apply(x, weight, bias, ProductInput::keep, {.counts = false});
}

at::Tensor linear_gelu(const at::Tensor& x, const Parameter& weight, const Parameter& bias, ProductInput input) {
  at::Tensor y, gelu;
  {
    const InPart part(part::kProducts);
    y = apply(x, weight, bias, input, {.gelu = &gelu});
  }
  const InPart part(part::kActivation);
  return gelu.defined() ? activated(Activation::gelu, y, gelu.view(y.sizes())) : activate(Activation::gelu, y);
}

}  // namespace gpt::ops
