#include "gpt/ops/attention.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>

#include "attention_shape.h"
#include "choice.h"
#include "cudnn_attention.h"
#include "dropout.h"
#include "gpt/ops/aten_attention.h"
#include "gpt/ops/heads.h"
#include "gpt/ops/sdp_backends.h"
#include "head_pass.h"
#include "kept.h"
#include "kernels.h"

namespace gpt::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct AttentionCall {
  cpu::AttentionShape shape;
  AttentionSpec spec;
  at::Tensor cos, sin, document_starts;  // contiguous; the shape points into them

  // What the kernels take: made anew in the backward pass, since that costs less than to keep it.
  at::Tensor normed(const at::Tensor& qkv) const { return spec.norms.defined() ? normed_heads(qkv, spec) : qkv; }
};

struct Attention : torch::autograd::Function<Attention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv,
                            const std::optional<at::Tensor>& /*of autograd*/,
                            const std::optional<at::Tensor>& /*of autograd*/, const AttentionCall& call) {
    cpu::AttentionShape shape = call.shape;
    const at::Tensor chosen = room_for_choice(shape);
    at::Tensor output = at::empty({shape.B, shape.T, shape.H * shape.D}, qkv.options());
    at::Tensor log_sum = at::empty({shape.B, shape.H, shape.T}, qkv.options().dtype(at::kFloat));
    cpu::attention(shape, call.normed(qkv), output, log_sum);
    context->save_for_backward({qkv, output, log_sum, chosen});
    keep(*context, call);
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &qkv = saved[0], &output = saved[1], &log_sum = saved[2], &chosen = saved[3];
    const AttentionCall& call = kept<AttentionCall>(*context);
    cpu::AttentionShape shape = call.shape;
    if (chosen.defined()) shape.chosen = chosen.mutable_data_ptr<int32_t>();
    at::Tensor gradient = at::empty_like(qkv);
    cpu::attention_backward(shape, call.normed(qkv), output, log_sum, gradients[0].contiguous(), gradient);
    if (call.spec.norms.defined()) differentiate_normed_heads(qkv, call.spec, gradient);
    return {gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor attention_on_cpu(const at::Tensor& qkv, const AttentionSpec& spec, const RotaryTables& rotary) {
  TORCH_CHECK(qkv.is_contiguous() && (qkv.scalar_type() == at::kFloat || qkv.scalar_type() == at::kBFloat16),
              "attention: qkv must be contiguous and float32 or bfloat16 on a CPU, got ", qkv.scalar_type(),
              " with strides ", qkv.strides());
  const int64_t D = qkv.size(2) / (spec.heads + 2 * spec.kv_heads);
  if (rotary.cos.defined()) check_rotary(rotary, qkv, D);
  AttentionCall call{{.B = qkv.size(0), .T = qkv.size(1), .H = spec.heads, .KV = spec.kv_heads, .D = D},
                     spec,
                     rotary.cos,
                     rotary.sin,
                     spec.document_starts};
  cpu::AttentionShape& shape = call.shape;
  shape.window = spec.window;
  set_choice(spec.blocks, shape);
  shape.dropout = mask_on_cpu(dropout_of(spec.dropout, qkv, shape.H));
  TORCH_CHECK(shape.dropout.first + shape.B * shape.dropout.of_sample <= int64_t{1} << 32,
              "attention: the dropout of an update numbers 2^32 heads of samples at most");
  for (at::Tensor* table : {&call.cos, &call.sin, &call.document_starts})
    if (table->defined()) *table = table->contiguous();
  if (call.cos.defined()) shape.cos = call.cos.const_data_ptr<float>(), shape.sin = call.sin.const_data_ptr<float>();
  if (call.document_starts.defined()) shape.document_starts = call.document_starts.const_data_ptr<int32_t>();
  return Attention::apply(qkv, parameters::trained_value(spec.norms.query), parameters::trained_value(spec.norms.key),
                          call);
}

#ifdef GPT_CUDA
// LibTorch's forward pass by cuDNN, and a backward pass that makes a packed gradient.
struct AttentionByCudnn : torch::autograd::Function<AttentionByCudnn> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv, const cuda::PackedAttention& shape) {
    const auto [q, k, v] = heads_first(qkv, shape);
    const auto results =
        at::_scaled_dot_product_cudnn_attention(q, k, v, /*attn_bias=*/std::nullopt, /*compute_log_sumexp=*/true,
                                                /*dropout_p=*/0, /*is_causal=*/true);
    const at::Tensor output = std::get<0>(results).transpose(1, 2).flatten(2).contiguous();
    context->save_for_backward({qkv, output, std::get<1>(results).contiguous(), /*seed=*/std::get<6>(results),
                                /*offset=*/std::get<7>(results)});
    keep(*context, shape);
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const cuda::PackedAttention shape = kept<cuda::PackedAttention>(*context);
    const cuda::AttentionPass pass{saved[0], saved[1], saved[2]};
    const at::Tensor of_output = gradients[0].contiguous();
    const auto by_libtorch = [&]() -> Heads {
      const auto by_head = [&](const at::Tensor& x) {
        return x.view({shape.B, shape.T, shape.H, shape.D}).transpose(1, 2);
      };
      const auto [q, k, v] = heads_first(pass.qkv, shape);
      const auto [of_q, of_k, of_v] =
          at::_scaled_dot_product_cudnn_attention_backward(by_head(of_output), q, k, v, by_head(pass.output),
                                                           pass.log_sum, saved[3], saved[4], /*attn_bias=*/{},
                                                           /*cum_seq_q=*/{}, /*cum_seq_k=*/{}, shape.T, shape.T,
                                                           /*dropout_p=*/0, /*is_causal=*/true);
      return {of_q.transpose(1, 2), of_k.transpose(1, 2), of_v.transpose(1, 2)};
    };
    return {cuda::packed_backward(shape, pass, of_output, by_libtorch), at::Tensor()};
  }

  // (B, heads, T, D)
  static Heads heads_first(const at::Tensor& qkv, const cuda::PackedAttention& shape) {
    const at::Tensor all = qkv.view({shape.B, shape.T, shape.H + 2 * shape.KV, shape.D}).transpose(1, 2);
    return {all.narrow(1, 0, shape.H), all.narrow(1, shape.H, shape.KV), all.narrow(1, shape.H + shape.KV, shape.KV)};
  }
};

// Where LibTorch would choose cuDNN, which it does not with deterministic: true, for attention without rotation, norms, dropout and masks.
std::optional<cuda::PackedAttention> packed_for_cudnn(const at::Tensor& qkv, const AttentionSpec& spec,
                                                      const RotaryTables& rotary) {
  const int64_t T = qkv.size(1), D = qkv.size(2) / (spec.heads + 2 * spec.kv_heads);
  const bool is_masked = spec.is_windowed(T) || spec.document_starts.defined(),
             has_16_bits = qkv.scalar_type() == at::kBFloat16 || qkv.scalar_type() == at::kHalf;
  if (!at::GradMode::is_enabled() || !qkv.requires_grad() || !qkv.is_contiguous() || !has_16_bits ||
      rotary.cos.defined() || spec.norms.defined() || spec.dropout.probability > 0 || is_masked)
    return std::nullopt;
  const cuda::PackedAttention shape{qkv.size(0),         T, spec.heads, spec.kv_heads, D, qkv.scalar_type(),
                                    qkv.device().index()};
  const auto [q, k, v] = AttentionByCudnn::heads_first(qkv, shape);
  if (chosen_sdp_backend(q, k, v, /*dropout=*/0) != at::SDPBackend::cudnn_attention ||
      !cuda::has_packed_backward(shape))
    return std::nullopt;
  return shape;
}
#endif

at::Tensor attention_elsewhere(at::Tensor qkv, const AttentionSpec& spec, const RotaryTables& rotary) {
#ifdef GPT_CUDA
  if (const auto shape = packed_for_cudnn(qkv, spec, rotary)) return AttentionByCudnn::apply(qkv, *shape);
#endif
  return aten_attention(split_heads(std::move(qkv), spec, rotary), spec);
}

}  // namespace

at::Tensor attention(at::Tensor qkv, const AttentionSpec& spec, const RotaryTables& rotary) {
  const int64_t heads = spec.heads + 2 * spec.kv_heads;
  TORCH_CHECK(spec.kv_heads > 0 && spec.heads > 0 && spec.heads % spec.kv_heads == 0, "attention: ", spec.heads,
              " heads are not a multiple of ", spec.kv_heads, " key/value heads");
  TORCH_CHECK(spec.window >= 0, "attention: a window has at least one position, got ", spec.window);
  TORCH_CHECK(qkv.dim() == 3 && qkv.size(2) % heads == 0 && qkv.numel() > 0, "attention: qkv must be (B, T, ", heads,
              " D), got ", qkv.sizes());
  const at::Tensor& starts = spec.document_starts;
  TORCH_CHECK(!starts.defined() || (starts.sizes() == qkv.sizes().slice(0, 2) && starts.scalar_type() == at::kInt),
              "attention: document_starts must be (B, T) int32 for qkv ", qkv.sizes(), ", got ", starts.sizes());
  check_choice(spec, qkv.is_cpu());
  check_head_norms(spec.norms, qkv, qkv.size(2) / heads);
  return qkv.is_cpu() ? attention_on_cpu(qkv, spec, rotary) : attention_elsewhere(std::move(qkv), spec, rotary);
}

}  // namespace gpt::ops
