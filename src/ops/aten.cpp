#include "gpt/ops/aten.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/kl_div.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "gpt/ops/document_starts.h"
#include "gpt/ops/sdp_backends.h"
#include "gpt/products/product.h"
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

// Of each row of logits (N, V) float32 from the teacher, times the square of the temperature: (N).
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
  const at::Tensor losses = at::nll_loss(log_p, targets, /*weight=*/{},
                                         is_mean ? at::Reduction::Sum : at::Reduction::None, kMaskedTarget),
                   of_targets = is_mean ? mean(losses) : losses;
  if (smoothing == 0) return of_targets;
  const at::Tensor of_all = (-log_p.sum(1)).masked_fill(targets == kMaskedTarget, 0);
  return (1 - smoothing) * of_targets +
         (is_mean ? mean(of_all.sum()) : of_all) * (smoothing / static_cast<double>(logits.size(1)));
}

// A scalar, or (N) where there is no mean.
at::Tensor cross_entropy(const at::Tensor& x, const Parameter& head, const at::Tensor& targets,
                         const ClassifierOptions& options, bool is_mean) {
  const at::Tensor rows = x.reshape({-1, x.size(-1)}), of_rows = targets.flatten();
  const at::Tensor logits =
      at::linear(rows, head.tracked()).narrow(-1, 0, options.vocabulary).to(at::kFloat);  // (N, V)
  const at::Tensor of_text = cross_entropy_of(logits, of_rows, options.label_smoothing, is_mean);
  if (!options.teacher.rows.defined()) return of_text;
  const at::Tensor losses = divergence(logits, options).masked_fill(of_rows == kMaskedTarget, 0);
  const double weight = options.teacher.weight;
  return (1 - weight) * of_text + weight * (is_mean ? losses.mean() : losses);
}

class AtenOperators : public SeparateProducts<Operators> {
 public:
  at::Tensor embedding(const at::Tensor& ids, const Parameter& table, const Parameter& positions,
                       const at::Tensor& starts, const DropoutSpec& dropout) const override {
    at::Tensor x = at::embedding(table.tracked(), ids);
    if (positions.defined()) x = x + position_rows(positions.tracked(), starts, ids.size(1));
    return at::dropout(x, dropout.probability, /*train=*/true);
  }

  Normalized add_norm(const Normalization& norm, const at::Tensor& x, const at::Tensor& branch,
                      const DropoutSpec& dropout) const override {
    const at::Tensor sum = branch.defined() ? x + at::dropout(branch, dropout.probability, /*train=*/true) : x;
    const at::IntArrayRef shape = norm.weight.value().sizes();
    return {sum, norm.kind == Norm::layernorm
                     ? at::layer_norm(sum, shape, norm.weight.tracked(), norm.bias.tracked(), norm.eps)
                     : at::rms_norm(sum, shape, norm.weight.tracked(), norm.eps)};
  }

  // Always keeps its input.
  at::Tensor linear(const at::Tensor& x, const LinearLayer& layer, ProductInput /*input*/) const override {
    return at::linear(x, layer.weight.tracked(), layer.bias.tracked());
  }

  at::Tensor linear_for_backward(const at::Tensor& x, const LinearLayer& layer) const override {
    const auto bias = layer.bias.defined() ? std::optional(in_product_type(layer.bias.tracked())) : std::nullopt;
    return LinearForBackward::apply(in_product_type(x), in_product_type(layer.weight.tracked()), bias);
  }

  Heads split_heads(at::Tensor qkv, const AttentionSpec& spec, const RotaryTables& rotary) const override {
    const auto [H, KV] = std::pair(spec.heads, spec.kv_heads);
    const int64_t B = qkv.size(0), T = qkv.size(1), heads = H + 2 * KV;
    auto parts = qkv.view({B, T, heads, -1}).split_with_sizes({H, KV, KV}, 2);
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
    return activation == Activation::silu ? at::silu(x) : at::gelu(x, "tanh");
  }

  at::Tensor activate_gated(Activation activation, const at::Tensor& gate, const at::Tensor& in,
                            const DropoutSpec& dropout) const override {
    return at::dropout(activate(activation, gate) * in, dropout.probability, /*train=*/true);
  }

  // All logits at once; `upstream` is not needed.
  at::Tensor classifier_loss(const at::Tensor& x, const Parameter& head, const at::Tensor& targets,
                             const ClassifierOptions& options, const at::Tensor& /*upstream*/) const override {
    return cross_entropy(x, head, targets, options, /*is_mean=*/true);
  }

  at::Tensor classifier_losses(const at::Tensor& x, const Parameter& head, const at::Tensor& targets,
                               const ClassifierOptions& options) const override {
    const at::NoGradGuard no_grad;
    return cross_entropy(x, head, targets, options, /*is_mean=*/false);
  }

  Draws draws(at::Device, int64_t) const override { return {.attention = true, .others = true}; }
};

// (B, H, T, T) bool: the keys that a query sees, which chooses blocks.
at::Tensor chosen_positions(const Heads& heads, const BlockChoice& blocks) {
  const int64_t T = heads.q.size(1), count = (T - 1) / blocks.size;  // blocks that some query has behind it
  const at::Tensor own = at::arange(T, heads.q.options().dtype(at::kLong)).floor_divide(blocks.size);  // (T)
  at::Tensor seen = (own.unsqueeze(1) == own).expand({heads.q.size(0), heads.q.size(2), T, T});
  if (count > 0) {
    const at::NoGradGuard no_grad;
    const at::Tensor means = heads.k.narrow(1, 0, count * blocks.size)
                                 .to(at::kFloat)
                                 .unflatten(1, {count, blocks.size})
                                 .mean(2)
                                 .repeat_interleave(heads.q.size(2) / heads.k.size(2), 2);  // (B, count, H, D)
    const at::Tensor importance = heads.q.to(at::kFloat).transpose(1, 2).matmul(means.permute({0, 2, 3, 1}));
    const at::Tensor numbers = at::arange(count, own.options()),
                     is_earlier = numbers < own.unsqueeze(1);  // (T, count)
    // The nearest block comes first, so that a stable order leaves it before its equals.
    const at::Tensor nearest_first =
        importance.masked_fill(is_earlier.logical_not(), -std::numeric_limits<double>::infinity()).flip(-1);
    const at::Tensor order = std::get<1>(nearest_first.sort(/*stable=*/true, -1, /*descending=*/true));
    const at::Tensor chosen = at::zeros_like(importance, at::kBool)
                                  .scatter(-1, order.narrow(-1, 0, std::min(blocks.top, count)), true)
                                  .flip(-1)
                                  .logical_and(is_earlier);  // (B, H, T, count)
    const at::Tensor of_keys = chosen.repeat_interleave(blocks.size, -1);
    seen = at::cat({seen.narrow(-1, 0, of_keys.size(-1)).logical_or(of_keys),
                    seen.narrow(-1, of_keys.size(-1), T - of_keys.size(-1))},
                   -1);
  }
  return seen;
}

// What a mask hides beyond causality: undefined where that is nothing; (T, T), (B, 1, T, T) with documents, or (B, H, T, T) with a choice.
at::Tensor mask_of(const Heads& heads, const AttentionSpec& spec) {
  const at::Tensor& starts = spec.document_starts;
  const int64_t T = heads.q.size(1);
  const at::Device device = heads.q.device();
  if (spec.blocks.top > 0)
    return chosen_positions(heads, spec.blocks).logical_and(visible_positions(T, 0, /*window=*/0, device));
  if (!spec.is_windowed(T) && !starts.defined()) return {};
  at::Tensor visible = visible_positions(T, 0, spec.window, device);
  if (!starts.defined()) return visible;
  return visible.logical_and(at::arange(T, starts.options()) >= starts.unsqueeze(-1)).unsqueeze(1);
}

}  // namespace

at::Tensor aten_attention(const Heads& heads, const AttentionSpec& spec) {
  const auto& [q, k, v] = heads;
  const int64_t T = q.size(1);
  const double dropout = spec.dropout.probability;
  if (spec.is_windowed(T) && !spec.document_starts.defined() && skips_windows(heads, dropout)) {
    const at::Tensor output =
        std::get<0>(at::_flash_attention_forward(q, k, v, /*cum_seq_q=*/{}, /*cum_seq_k=*/{}, T, T, dropout,
                                                 /*is_causal=*/true, /*return_debug_mask=*/false,
                                                 /*scale=*/std::nullopt, /*window_size_left=*/spec.window - 1,
                                                 /*window_size_right=*/0));  // (B, T, H, D)
    return output.flatten(2);
  }
  const at::Tensor mask = mask_of(heads, spec);
  const OnlySdpBackends backends(exact_for_dropout(dropout));
  const at::Tensor output =
      at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                                       mask.defined() ? std::optional(mask) : std::nullopt, dropout,
                                       /*is_causal=*/!mask.defined(), /*scale=*/std::nullopt,
                                       /*enable_gqa=*/k.size(2) < q.size(2));
  return output.transpose(1, 2).flatten(2);
}

bool skips_windows(const Heads& heads, double dropout) {
  const auto& [q, k, v] = heads;
  constexpr int64_t kUnitOfWidth = 8;  // of the heads that its kernels take
  if (!q.is_cuda() || q.size(3) % kUnitOfWidth != 0 || !allowed_sdp_backends().flash) return false;
  const OnlySdpBackends flash({.flash = true, .math = true});  // one of them is chosen
  return chosen_sdp_backend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), dropout) ==
         at::SDPBackend::flash_attention;
}

at::Tensor visible_positions(int64_t queries, int64_t past, int64_t window, at::Device device) {
  const auto options = at::TensorOptions(device).dtype(at::kBool);
  const at::Tensor before = at::ones({queries, past + queries}, options).tril(past);
  return window > 0 ? before.triu(past - window + 1) : before;
}

SharedOperators Operators::reference() const { return aten_operators(); }

SharedOperators aten_operators() {
  static const SharedOperators operators = std::make_shared<AtenOperators>();
  return operators;
}

}  // namespace gpt::ops
