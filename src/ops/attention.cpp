#include "gpt/ops/attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>

#include "attention_shape.h"
#include "dropout.h"
#include "gpt/ops/aten.h"
#include "gpt/ops/heads.h"
#include "kept.h"
#include "kernels.h"

namespace gpt::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void set_tables(cpu::AttentionShape& shape, const at::Tensor& cos, const at::Tensor& sin) {
  if (!cos.defined()) return;
  shape.cos = cos.const_data_ptr<float>();
  shape.sin = sin.const_data_ptr<float>();
}

struct Attention : torch::autograd::Function<Attention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv, cpu::AttentionShape shape,
                            const std::optional<at::Tensor>& cos, const std::optional<at::Tensor>& sin) {
    at::Tensor output = at::empty({shape.B, shape.T, shape.H * shape.D}, qkv.options());
    at::Tensor log_sum = at::empty({shape.B, shape.H, shape.T}, qkv.options().dtype(at::kFloat));
    cpu::attention(shape, qkv, output, log_sum);
    context->save_for_backward({qkv, output, log_sum, cos.value_or(at::Tensor()), sin.value_or(at::Tensor())});
    keep(*context, shape.dropout);
    context->saved_data["H"] = shape.H;
    context->saved_data["KV"] = shape.KV;
    context->saved_data["window"] = shape.window;
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &qkv = saved[0], &output = saved[1], &log_sum = saved[2];
    cpu::AttentionShape shape = shape_of(qkv, context->saved_data["H"].toInt(), context->saved_data["KV"].toInt());
    shape.dropout = kept<cpu::DropoutMask>(*context);
    shape.window = context->saved_data["window"].toInt();
    set_tables(shape, saved[3], saved[4]);
    at::Tensor gradient = at::empty_like(qkv);
    cpu::attention_backward(shape, qkv, output, log_sum, gradients[0].contiguous(), gradient);
    return {gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }

  static cpu::AttentionShape shape_of(const at::Tensor& qkv, int64_t n_head, int64_t n_kv_head) {
    return {
        .B = qkv.size(0), .T = qkv.size(1), .H = n_head, .KV = n_kv_head, .D = qkv.size(2) / (n_head + 2 * n_kv_head)};
  }
};

at::Tensor attention_on_cpu(const at::Tensor& qkv, const AttentionSpec& spec, const RotaryTables& rotary) {
  TORCH_CHECK(qkv.is_contiguous() && (qkv.scalar_type() == at::kFloat || qkv.scalar_type() == at::kBFloat16),
              "attention: qkv must be contiguous and float32 or bfloat16 on a CPU, got ", qkv.scalar_type(),
              " with strides ", qkv.strides());
  cpu::AttentionShape shape = Attention::shape_of(qkv, spec.heads, spec.kv_heads);
  shape.dropout = mask_on_cpu(dropout_of(spec.dropout, qkv, shape.H));
  shape.window = spec.window;
  TORCH_CHECK(shape.dropout.first + shape.B * shape.dropout.of_sample <= int64_t{1} << 32,
              "attention: the dropout of an update numbers 2^32 heads of samples at most");
  if (!rotary.cos.defined()) return Attention::apply(qkv, shape, std::nullopt, std::nullopt);
  check_rotary(rotary, qkv, shape.D);
  const at::Tensor cos = rotary.cos.contiguous(), sin = rotary.sin.contiguous();
  set_tables(shape, cos, sin);
  return Attention::apply(qkv, shape, std::optional(cos), std::optional(sin));
}

}  // namespace

at::Tensor attention(at::Tensor qkv, const AttentionSpec& spec, const RotaryTables& rotary) {
  const int64_t heads = spec.heads + 2 * spec.kv_heads;
  TORCH_CHECK(spec.kv_heads > 0 && spec.heads > 0 && spec.heads % spec.kv_heads == 0, "attention: ", spec.heads,
              " heads are not a multiple of ", spec.kv_heads, " key/value heads");
  TORCH_CHECK(spec.window >= 0, "attention: a window has at least one position, got ", spec.window);
  TORCH_CHECK(qkv.dim() == 3 && qkv.size(2) % heads == 0 && qkv.numel() > 0, "attention: qkv must be (B, T, ", heads,
              " D), got ", qkv.sizes());
  return qkv.is_cpu() ? attention_on_cpu(qkv, spec, rotary)
                      : aten_attention(split_heads(std::move(qkv), spec, rotary), spec);
}

}  // namespace gpt::ops
