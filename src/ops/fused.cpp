#include "gpt/ops/fused.h"

#include <memory>
#include <utility>

#include "gpt/ops/activation.h"
#include "gpt/ops/aten.h"
#include "gpt/ops/attention.h"
#include "gpt/ops/classifier.h"
#include "gpt/ops/embedding.h"
#include "gpt/ops/heads.h"
#include "gpt/ops/linear.h"
#include "gpt/ops/norm.h"
#include "kernels.h"

namespace gpt::ops {
namespace {

class FusedOperators : public Operators {
 public:
  at::Tensor embedding(const at::Tensor& ids, const Parameter& table, const Parameter& positions,
                       const at::Tensor& starts, const DropoutSpec& dropout) const override {
    return ops::embedding(ids, table, positions, /*offset=*/0, dropout, starts);
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
  at::Tensor linear_gelu(const at::Tensor& x, const LinearLayer& layer, ProductInput input) const override {
    return ops::linear_gelu(x, layer.weight, layer.bias, input);
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
  at::Tensor classifier_loss(const at::Tensor& x, const Parameter& head, const at::Tensor& targets,
                             const ClassifierOptions& options, const at::Tensor& upstream) const override {
    return ops::classifier_loss(x, head, targets, options, upstream);
  }
  at::Tensor classifier_losses(const at::Tensor& x, const Parameter& head, const at::Tensor& targets,
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

}  // namespace gpt::ops
