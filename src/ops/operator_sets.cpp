#include "gpt/ops/operator_sets.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/kl_div.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "adapter.h"
#include "gpt/ops/activation.h"
#include "gpt/ops/aten_attention.h"
#include "gpt/ops/attention.h"
#include "gpt/ops/classifier.h"
#include "gpt/ops/document_starts.h"
#include "gpt/ops/embedding.h"
#include "gpt/ops/heads.h"
#include "gpt/ops/linear.h"
#include "gpt/ops/norm.h"
#include "gpt/products/product.h"
#include "kernels.h"
#include "separate_products.h"

namespace gpt::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// at::linear(), of which only the backward pass is done.
struct LinearForBackward : torch::autograd::Function<LinearForBackward> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    context->save_for_backward({x, weight});
    context->saved_data["bias"] = bias.has_value();
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = weight.size(0);
    return at::zeros({}, x.options()).expand(shape);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];                              // (..., K), (N, K)
    const at::Tensor gradient = gradients[0].reshape({-1, weight.size(0)});          // (M, N)
    return {at::mm(gradient, weight).view(x.sizes()),                                // (..., K)
            at::mm(gradient.t(), x.reshape({-1, x.size(-1)})),                       // (N, K)
            context->saved_data["bias"].toBool() ? gradient.sum(0) : at::Tensor()};  // (N)
  }
};

// at::linear() with a weight of few bits, which the backward pass unpacks again.
struct LinearOfNarrow : torch::autograd::Function<LinearOfNarrow> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const LinearLayer& layer) {
    context->saved_data["weight"] = layer.weight.to_capsule();
    const at::Tensor bias = layer.bias.defined() ? layer.bias.compute_value().detach() : at::Tensor();
    return at::linear(x, layer.weight.product_value(x.scalar_type()), bias.defined() ? bias.to(x.scalar_type()) : bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const parameters::Parameter weight = parameters::Parameter::from_capsule(context->saved_data["weight"]);
    return {at::matmul(gradients[0], weight.product_value(gradients[0].scalar_type())), at::Tensor()};
  }
};

at::Tensor aten_linear(const at::Tensor& x, const LinearLayer& layer) {
  if (layer.weight.is_narrow()) return LinearOfNarrow::apply(in_product_type(x), layer);
  return at::linear(x, layer.weight.tracked(), layer.bias.tracked());
}

// The divergence of each row of logits (N, V) float32 from the teacher, times the square of the temperature: (N).
at::Tensor divergence(const at::Tensor& logits, const ClassifierOptions& options) {
  const auto& [rows, head, weight, temperature] = options.teacher;
  const at::Tensor of_teacher =
      at::linear(rows.reshape({-1, rows.size(-1)}), head).narrow(-1, 0, options.vocabulary).to(at::kFloat);
  const auto softened = [t = temperature](const at::Tensor& x) { return at::log_softmax(t == 1 ? x : x / t, -1); };
  const at::Tensor wanted = softened(of_teacher), found = softened(logits);
  return temperature * temperature * at::kl_div(found, wanted, at::Reduction::None, /*log_target=*/true).sum(-1);
}

// As at::cross_entropy_loss() computes it, to the bit, but for masked rows, which count in the mean as 0.
at::Tensor cross_entropy_of(const at::Tensor& logits, const at::Tensor& targets, double smoothing, bool is_mean) {
  const at::Tensor log_p = at::log_softmax(logits, 1);
  const auto mean = [rows = logits.size(0)](const at::Tensor& sum) { return sum / static_cast<double>(rows); };
  at::Tensor of_targets =
      at::nll_loss(log_p, targets, /*weight=*/{}, is_mean ? at::Reduction::Sum : at::Reduction::None, kMaskedTarget);
  if (is_mean) of_targets = mean(of_targets);
  if (smoothing == 0) return of_targets;
  const at::Tensor of_all = (-log_p.sum(1)).masked_fill(targets == kMaskedTarget, 0);
  return (1 - smoothing) * of_targets +
         (is_mean ? mean(of_all.sum()) : of_all) * (smoothing / static_cast<double>(logits.size(1)));
}

// A scalar, or (N) where there is no mean.
at::Tensor cross_entropy(const at::Tensor& x, const parameters::Parameter& head, const at::Tensor& targets,
                         const ClassifierOptions& options, bool is_mean) {
  const at::Tensor rows = x.reshape({-1, x.size(-1)}), of_rows = targets.flatten();
  const at::Tensor logits =
      at::linear(rows, head.tracked()).narrow(-1, 0, options.vocabulary).to(at::kFloat);  // (N, V)
  at::Tensor of_text = cross_entropy_of(logits, of_rows, options.label_smoothing, is_mean);
  if (!options.teacher.rows.defined()) return of_text;
  const at::Tensor losses = divergence(logits, options).masked_fill(of_rows == kMaskedTarget, 0);
  const double weight = options.teacher.weight;
  return (1 - weight) * of_text + weight * (is_mean ? losses.mean() : losses);
}

class AtenOperators : public SeparateProducts<Operators> {
 public:
  at::Tensor embedding(const at::Tensor& ids, const parameters::Parameter& table,
                       const parameters::Parameter& positions, const at::Tensor& starts,
                       const DropoutSpec& dropout) const override {
    at::Tensor x = table.is_narrow() ? table.frozen()
                                           .rows_of(ids.flatten(), table.compute_value().scalar_type())
                                           .view({ids.size(0), ids.size(1), -1})
                                     : at::embedding(table.tracked(), ids);
    if (positions.defined()) x = x + position_rows(positions.tracked(), starts, ids.size(1));
    return at::dropout(x, dropout.probability, /*train=*/true);
  }

  Normalized add_norm(const Normalization& norm, const at::Tensor& x, const at::Tensor& branch,
                      const DropoutSpec& dropout) const override {
    return aten_add_norm(norm, x, branch, dropout);
  }

  // Always keeps its input.
  at::Tensor linear(const at::Tensor& x, const LinearLayer& layer, ProductInput /*input*/) const override {
    const at::Tensor y = aten_linear(x, layer);
    return layer.adapter.defined() ? plus_adapter(layer.adapter, y, x) : y;
  }

  at::Tensor linear_for_backward(const at::Tensor& x, const LinearLayer& layer) const override {
    if (layer.weight.is_narrow()) return linear(x, layer, ProductInput::keep);
    const auto bias = layer.bias.defined() ? std::optional(in_product_type(layer.bias.tracked())) : std::nullopt;
    const at::Tensor y = LinearForBackward::apply(in_product_type(x), in_product_type(layer.weight.tracked()), bias);
    return layer.adapter.defined() ? plus_adapter(layer.adapter, y, x) : y;
  }

  Heads split_heads(at::Tensor qkv, const AttentionSpec& spec, const RotaryTables& rotary) const override {
    const auto [H, KV] = std::pair(spec.heads, spec.kv_heads);
    const int64_t B = qkv.size(0), T = qkv.size(1), heads = H + 2 * KV;
    auto parts = qkv.view({B, T, heads, -1}).split_with_sizes({H, KV, KV}, 2);
    if (const HeadNorms& norms = spec.norms; norms.defined()) {
      const auto normed = [&](const at::Tensor& x, const parameters::Parameter& weight) {
        return at::rms_norm(x, x.size(-1), (weight.tracked() + norms.offset).to(x.scalar_type()), norms.eps);
      };
      parts[0] = normed(parts[0], norms.query), parts[1] = normed(parts[1], norms.key);
    }
    if (rotary.cos.defined()) {
      parts[0] = ops::rotary(parts[0], rotary);
      parts[1] = ops::rotary(parts[1], rotary);
    }
    return {parts[0], parts[1], parts[2]};
  }

  at::Tensor attention(at::Tensor qkv, const AttentionSpec& spec, const RotaryTables& rotary) const override {
    return aten_attention(split_heads(std::move(qkv), spec, rotary), spec);
  }

  at::Tensor activate(Activation activation, const at::Tensor& x) const override {
    switch (activation) {
      case Activation::silu: return at::silu(x);
      case Activation::gelu: return at::gelu(x, "tanh");
      case Activation::relu2: break;
    }
    return at::relu(x).square();
  }

  at::Tensor activate_gated(Activation activation, const at::Tensor& gate, const at::Tensor& in,
                            const DropoutSpec& dropout) const override {
    return at::dropout(activate(activation, gate) * in, dropout.probability, /*train=*/true);
  }

  // All logits at once; `upstream` is not needed.
  at::Tensor classifier_loss(const at::Tensor& x, const parameters::Parameter& head, const at::Tensor& targets,
                             const ClassifierOptions& options, const at::Tensor& /*upstream*/) const override {
    return cross_entropy(x, head, targets, options, /*is_mean=*/true);
  }

  at::Tensor classifier_losses(const at::Tensor& x, const parameters::Parameter& head, const at::Tensor& targets,
                               const ClassifierOptions& options) const override {
    const at::NoGradGuard no_grad;
    return cross_entropy(x, head, targets, options, /*is_mean=*/false);
  }

  Draws draws(at::Device, int64_t) const override { return {.attention = true, .others = true}; }
};

class FusedOperators : public Operators {
 public:
  at::Tensor embedding(const at::Tensor& ids, const parameters::Parameter& table,
                       const parameters::Parameter& positions, const at::Tensor& starts,
                       const DropoutSpec& dropout) const override {
    return ops::embedding(ids, table, positions, dropout, starts);
  }
  Normalized add_norm(const Normalization& norm, const at::Tensor& x, const at::Tensor& branch,
                      const DropoutSpec& dropout) const override {
    return ops::add_norm(norm, x, branch, dropout);
  }
  at::Tensor linear(const at::Tensor& x, const LinearLayer& layer, ProductInput input) const override {
    return ops::linear(x, layer, input);
  }
  std::pair<at::Tensor, at::Tensor> linear_pair(const at::Tensor& x, const LinearLayer& first,
                                                const LinearLayer& second, ProductInput input) const override {
    return ops::linear_pair(x, first, second, input);
  }
  at::Tensor linear_activated(Activation activation, const at::Tensor& x, const LinearLayer& layer,
                              ProductInput input) const override {
    return ops::linear_activated(activation, x, layer, input);
  }
  at::Tensor linear_for_backward(const at::Tensor& x, const LinearLayer& layer) const override {
    return ops::linear_for_backward(x, layer);
  }
  Heads split_heads(at::Tensor qkv, const AttentionSpec& spec, const RotaryTables& rotary) const override {
    return ops::split_heads(std::move(qkv), spec, rotary);
  }
  at::Tensor attention(at::Tensor qkv, const AttentionSpec& spec, const RotaryTables& rotary) const override {
    return ops::attention(std::move(qkv), spec, rotary);
  }
  at::Tensor activate(Activation activation, const at::Tensor& x) const override {
    return ops::activate(activation, x);
  }
  at::Tensor activate_gated(Activation activation, const at::Tensor& gate, const at::Tensor& in,
                            const DropoutSpec& dropout) const override {
    return ops::activate_gated(activation, gate, in, dropout);
  }
  at::Tensor classifier_loss(const at::Tensor& x, const parameters::Parameter& head, const at::Tensor& targets,
                             const ClassifierOptions& options, const at::Tensor& upstream) const override {
    return ops::classifier_loss(x, head, targets, options, upstream);
  }
  at::Tensor classifier_losses(const at::Tensor& x, const parameters::Parameter& head, const at::Tensor& targets,
                               const ClassifierOptions& options) const override {
    return ops::classifier_losses(x, head, targets, options);
  }
  Draws draws(at::Device device, int64_t n_embd) const override {
    return {.attention = !device.is_cpu(), .others = !device.is_cpu() && n_embd > kMostNormColumnsOfCuda};
  }
};

// Their attention by LibTorch's unfused kernel.
class WithAtenAttention : public WrappedOperators {
 public:
  using WrappedOperators::WrappedOperators;
  at::Tensor attention(at::Tensor qkv, const AttentionSpec& spec, const RotaryTables& rotary) const override {
    return aten_operators()->attention(std::move(qkv), spec, rotary);
  }
  Draws draws(at::Device device, int64_t n_embd) const override {
    return {.attention = true, .others = inner_->draws(device, n_embd).others};
  }
};

}  // namespace

SharedOperators fused_operators() {
  static const SharedOperators operators = std::make_shared<FusedOperators>();
  return operators;
}

SharedOperators with_aten_attention(SharedOperators inner) {
  return std::make_shared<WithAtenAttention>(std::move(inner));
}

SharedOperators Operators::reference() const { return aten_operators(); }

SharedOperators aten_operators() {
  static const SharedOperators operators = std::make_shared<AtenOperators>();
  return operators;
}

}  // namespace gpt::ops
