#include "gpt/ops/linear.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "adapter.h"
#include "dropout.h"
#include "gelu_gradient.h"
#include "gpt/ops/activation.h"
#include "gpt/ops/eight_bit_weights.h"
#include "gpt/ops/part.h"
#include "gpt/products/row_product.h"
#include "gpt/products/tuned_product.h"
#include "kept.h"
#include "kernels.h"
#include "repeat.h"
#include "row_sums.h"

namespace gpt::ops {
namespace {

using cpu::MatrixLibrary;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LinearResult {
  at::Tensor* gelu = nullptr;  // as of product_with_bias()
  bool counts = true;          // false: only the backward pass does
  std::shared_ptr<EightBitWeights> eight_bits = nullptr;
};

struct LinearContext {
  std::vector<LinearLayer> layers;
  std::vector<std::shared_ptr<RowSums>> sums;  // sums of the layers' gradients, where they have a bias
  MatrixLibrary library;
  Repeat repeat;  // computes the input again, where that is not saved
  std::optional<GeluSource> gelu =
      std::nullopt;  // where the input comes from, if the product can multiply by the slope
  std::shared_ptr<EightBitWeights> eight_bits = nullptr;  // for the products of the backward pass
  int64_t of_sample = 1;                                  // rows of the input
};

// Any number of layers that take the same input, whose gradient adds up the products of all. What autograd keeps of a weight is at most
// autocast's copy: the memory of the weight itself may have been another's until the backward pass, which asks for it again.
struct Linear : torch::autograd::Function<Linear> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& /*of autograd*/,
                               const std::vector<LinearLayer>& layers, MatrixLibrary library, ProductInput input,
                               const LinearResult& result) {
    const at::Tensor rows = in_product_type(x.reshape({-1, x.size(-1)}));  // (M, K)
    const bool needs_rows = any_trained(layers);
    LinearContext needed{layers, {}, library, needs_rows && input == ProductInput::repeat ? repeat_of(x) : Repeat()};
    needed.of_sample = rows_of_sample(x);
    variable_list saved{needed.repeat || !needs_rows ? at::Tensor() : rows}, results;
    std::vector<int64_t> shape = x.sizes().vec();
    const EightBitFactor codes =  // for all layers
        result.counts && result.eight_bits ? result.eight_bits->round(rows) : EightBitFactor();
    variable_list narrow;  // of the layers, where they have an adapter
    for (const auto& [parameter, bias, site, adapter] : layers) {
      const at::Tensor weight = in_product_type(parameter.product_value(rows.scalar_type())),  // (N, K)
          b = bias.defined() ? in_product_type(bias.compute_value()) : at::Tensor();
      shape.back() = weight.size(0);
      results.push_back(!result.counts ? at::zeros({}, rows.options()).expand(shape)
                        : result.eight_bits
                            ? result.eight_bits->product(codes, parameter, b).view(shape)
                            : product_with_bias(rows, weight, b, library, result.gelu, gelu_out).view(shape));
      narrow.push_back(adapter.defined() ? narrowed(adapter, rows, needed.of_sample, library) : at::Tensor());
      if (adapter.defined() && result.counts)
        add_adapter(adapter, results.back().view({rows.size(0), -1}), narrow.back());
      saved.push_back(weight.is_same(parameter.compute_value()) || parameter.is_narrow() ? at::Tensor() : weight);
      needed.sums.push_back(bias.is_trained() ? std::make_shared<RowSums>() : nullptr);
    }
    // The sums have the gradient's type, in which a scaled loss's, of float16, could overflow.
    const bool can_sum = rows.scalar_type() == x.scalar_type() && rows.scalar_type() != at::kHalf;
    if (result.eight_bits && result.eight_bits->all_products()) {
      needed.eight_bits = result.eight_bits;
    } else if (layers.size() == 1 && tunes_products(x) && can_sum && !layers[0].adapter.defined()) {
      needed.gelu = claim_gelu(x);
    }
    saved.insert(saved.end(), narrow.begin(), narrow.end());
    context->save_for_backward(std::move(saved));
    keep(*context, std::move(needed));
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto& [layers, sums, library, repeat, gelu, eight_bits, of_sample] = kept<LinearContext>(*context);
    const auto weight_of = [&saved, &layers, &gradients](size_t i) {
      return saved[1 + i].defined() ? saved[1 + i] : layers[i].weight.product_value(gradients[i].scalar_type());
    };
    const int64_t K = layers[0].weight.value().size(1);
    const at::ScalarType type = saved[1].defined()             ? saved[1].scalar_type()
                                : layers[0].weight.is_narrow() ? gradients[0].scalar_type()
                                                               : layers[0].weight.compute_value().scalar_type();
    const at::Tensor rows =
        repeat ? repeat().reshape({-1, K}).to(type) : saved[0];  // undefined where nothing is trained
    at::Tensor x_gradient;                                       // (M, K)
    for (size_t i = 0; i < layers.size(); ++i) {
      const at::Tensor weight = weight_of(i);
      const at::Tensor gradient = gradients[i].reshape({-1, weight.size(0)});  // (M, N)
      if (eight_bits && context->needs_input_grad(0)) {
        eight_bits->add_input_gradient(x_gradient, gradient, layers[i].weight);
      } else if (x_gradient.defined()) {
        add_product(x_gradient, gradient, weight, library);
      } else if (gelu && tunes_products(gradient)) {
        x_gradient = through_gelu(*gelu, gradient, weight);
      } else if (context->needs_input_grad(0)) {
        x_gradient = product(gradient, weight, library);
      }
      const RowSums written = sums[i] ? std::exchange(*sums[i], {}) : RowSums();
      at::Tensor parts = written.gradient.is_same(gradients[i]) ? written.parts : at::Tensor();
      if (layers[i].weight.is_trained()) {
        if (eight_bits) {
          eight_bits->add_weight_gradient(layers[i].weight, gradient, rows);
        } else if (sums[i] && !parts.defined() && tunes_products(gradient) && can_sum_into(layers[i].weight)) {
          parts = accumulate_with_sums(layers[i].weight, gradient, rows, library);
        } else {
          accumulate_product(layers[i].weight, gradient, rows, library);
        }
      }
      if (sums[i]) accumulate_bias(layers[i].bias, gradient, parts);
      if (const Adapter& adapter = layers[i].adapter; adapter.defined())
        add_adapter_gradients(adapter, gradient, rows, of_sample, saved[1 + layers.size() + i], x_gradient, library);
    }
    variable_list result(6);
    if (x_gradient.defined()) {
      std::vector<int64_t> shape = gradients[0].sizes().vec();
      shape.back() = K;
      result[0] = x_gradient.view(shape);
      if (gelu && gelu->gradient->sums.defined()) gelu->gradient->gradient = result[0];
    }
    return result;
  }

 private:
  static bool any_trained(const std::vector<LinearLayer>& layers) {
    return std::any_of(layers.begin(), layers.end(),
                       [](const LinearLayer& layer) { return layer.weight.is_trained() || layer.adapter.defined(); });
  }

  // The gradient (M, K) of what went into GELU, whose sums it leaves to the activation.
  static at::Tensor through_gelu(const GeluSource& gelu, const at::Tensor& gradient, const at::Tensor& weight) {
    const at::Tensor sums = at::empty({weight.size(1)}, gradient.options());
    const at::Tensor result = product_through_gelu(gradient, weight, gelu.input(), sums, gelu_backward);
    gelu.gradient->sums = sums.to(at::kFloat).unsqueeze(0);
    return result;
  }

  // The sums have the type of the weight's gradient, in which a scaled loss's, of float16, could overflow.
  static bool can_sum_into(const parameters::Parameter& weight) { return weight.gradient_type() != at::kHalf; }

  // Returns the sums of the gradient's columns, in one part.
  static at::Tensor accumulate_with_sums(const parameters::Parameter& weight, const at::Tensor& gradient,
                                         const at::Tensor& rows, MatrixLibrary library) {
    const at::Tensor sums = at::empty({gradient.size(1)}, gradient.options().dtype(weight.gradient_type()));
    accumulate_product(weight, gradient, rows, library, sums, [](const at::Tensor& a, const at::Tensor& to) {
      const at::Tensor parts = kernels_of(a)->sum_rows(a.t());
      to.copy_(parts.defined() ? parts.sum(0) : a.sum(1, /*keepdim=*/false, at::kFloat));
    });
    return sums.to(at::kFloat).unsqueeze(0);
  }

  static void accumulate_bias(const parameters::Parameter& bias, const at::Tensor& gradient, const at::Tensor& sums) {
    const DeviceKernels kernels = kernels_of(gradient);
    const at::Tensor parts = sums.defined() ? sums : kernels->sum_rows(gradient);
    if (parts.defined()) {
      kernels->add_row_sums({bias}, parts);
    } else {
      bias.add_to_gradient(gradient.sum(0));
    }
  }
};

// What generating a token computes.
variable_list few_rows(const at::Tensor& x, const at::Tensor& rows, const std::vector<LinearLayer>& layers) {
  std::vector<int64_t> shape = x.sizes().vec();
  variable_list results;
  for (const auto& [weight, bias, site, adapter] : layers) {
    shape.back() = weight.value().size(0);
    const at::Tensor b = bias.defined() ? bias.compute_value() : at::Tensor();
    const at::Tensor y = row_product(rows, weight.product_value(), b);
    if (adapter.defined()) add_adapter(adapter, y, narrowed(adapter, rows, rows_of_sample(x), MatrixLibrary::aten));
    results.push_back(y.view(shape));
  }
  return results;
}

// What tells autograd whether anything of the layers is trained.
const at::Tensor& leaf_of(const std::vector<LinearLayer>& layers) {
  for (const LinearLayer& layer : layers)
    if (layer.adapter.defined()) return layer.adapter.a.value();
  return layers[0].weight.value();
}

variable_list apply(const at::Tensor& x, const std::vector<LinearLayer>& layers, ProductInput input,
                    const LinearResult& result) {
  for (const auto& [weight, bias, site, adapter] : layers) {
    TORCH_CHECK(weight.value().dim() == 2 && x.size(-1) == weight.value().size(1), "linear: x ", x.sizes(),
                " does not fit weight ", weight.value().sizes());
  }
  if (result.eight_bits) return Linear::apply(x, leaf_of(layers), layers, product_library(x), input, result);
  // Only in inference: what is recomputed in a backward pass must have been computed by the same product.
  if (c10::InferenceMode::is_enabled() && !at::autocast::is_autocast_enabled(x.device().type())) {
    const at::Tensor rows = x.reshape({-1, x.size(-1)});
    const auto are_few = [&](const LinearLayer& layer) { return has_few_rows(rows, layer.weight.compute_value()); };
    if (std::all_of(layers.begin(), layers.end(), are_few)) return few_rows(x, rows, layers);
  }
  const MatrixLibrary library = product_library(x);
  // Where a tuned product is computed again in the backward pass, it must be the same one.
  if (library == MatrixLibrary::aten && !at::GradMode::is_enabled() && !tunes_products(x)) {
    variable_list results;
    for (const auto& [weight, bias, site, adapter] : layers) {
      const at::Tensor y =
          at::linear(x, weight.product_value(x.scalar_type()), bias.defined() ? bias.compute_value() : at::Tensor());
      results.push_back(adapter.defined() ? plus_adapter(adapter, y, x) : y);
    }
    return results;
  }
  return Linear::apply(x, leaf_of(layers), layers, library, input, result);
}

}  // namespace

std::shared_ptr<RowSums> wanted_row_sums(const at::Tensor& y) {
  if (!y.defined()) return nullptr;
  const auto node = std::dynamic_pointer_cast<torch::autograd::CppNode<Linear>>(y.grad_fn());
  return node ? kept<LinearContext>(node->ctx_).sums[y.output_nr()] : nullptr;
}

at::Tensor cpu::linear(const at::Tensor& x, const parameters::Parameter& weight, const parameters::Parameter& bias,
                       MatrixLibrary library) {
  TORCH_CHECK(x.is_cpu() && x.scalar_type() == at::kFloat, "linear: takes float32 on the CPU, got ", x.scalar_type(),
              " on ", x.device());
  const std::vector layers{LinearLayer{weight, bias}};
  return Linear::apply(x, weight.value(), layers, library, ProductInput::keep, LinearResult())[0];
}

at::Tensor linear(const at::Tensor& x, const LinearLayer& layer, ProductInput input,
                  std::shared_ptr<EightBitWeights> eight_bits) {
  return apply(x, {layer}, input, {.eight_bits = std::move(eight_bits)})[0];
}

std::pair<at::Tensor, at::Tensor> linear_pair(const at::Tensor& x, const LinearLayer& first, const LinearLayer& second,
                                              ProductInput input, std::shared_ptr<EightBitWeights> eight_bits) {
  const variable_list results = apply(x, {first, second}, input, {.eight_bits = std::move(eight_bits)});
  return {results[0], results[1]};
}

at::Tensor linear_for_backward(const at::Tensor& x, const LinearLayer& layer,
                               std::shared_ptr<EightBitWeights> eight_bits) {
  return apply(x, {layer}, ProductInput::keep, {.counts = false, .eight_bits = std::move(eight_bits)})[0];
}

at::Tensor linear_activated(Activation activation, const at::Tensor& x, const LinearLayer& layer, ProductInput input) {
  at::Tensor y, gelu;
  {
    const InPart part(part::kProducts);
    // What an adapter adds comes before the activation, and of those the product's kernels have GELU alone.
    const bool is_fused = activation == Activation::gelu && !layer.adapter.defined();
    y = apply(x, {layer}, input, {.gelu = is_fused ? &gelu : nullptr})[0];
  }
  const InPart part(part::kActivation);
  return gelu.defined() ? activated(activation, y, gelu.view(y.sizes())) : activate(activation, y);
}

}  // namespace gpt::ops
