#include "gpt/ops/attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "attention_shape.h"
#include "choice.h"
#include "dropout.h"
#include "gpt/ops/aten.h"
#include "gpt/ops/heads.h"
#include "kept.h"
#include "kernels.h"

namespace gpt::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct AttentionCall {
  cpu::AttentionShape shape;
  at::Tensor cos, sin, document_starts;  // contiguous; the shape points into them
};

struct Attention : torch::autograd::Function<Attention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv, const AttentionCall& call) {
    cpu::AttentionShape shape = call.shape;
    const at::Tensor chosen = room_for_choice(shape);
    at::Tensor output = at::empty({shape.B, shape.T, shape.H * shape.D}, qkv.options());
    at::Tensor log_sum = at::empty({shape.B, shape.H, shape.T}, qkv.options().dtype(at::kFloat));
    cpu::attention(shape, qkv, output, log_sum);
    context->save_for_backward({qkv, output, log_sum, chosen});
    keep(*context, call);
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &qkv = saved[0], &output = saved[1], &log_sum = saved[2], &chosen = saved[3];
    cpu::AttentionShape shape = kept<AttentionCall>(*context).shape;
    if (chosen.defined()) shape.chosen = chosen.mutable_data_ptr<int32_t>();
    at::Tensor gradient = at::empty_like(qkv);
    cpu::attention_backward(shape, qkv, output, log_sum, gradients[0].contiguous(), gradient);
    return {gradient, at::Tensor()};
  }
};

at::Tensor attention_on_cpu(const at::Tensor& qkv, const AttentionSpec& spec, const RotaryTables& rotary) {
  TORCH_CHECK(qkv.is_contiguous() && (qkv.scalar_type() == at::kFloat || qkv.scalar_type() == at::kBFloat16),
              "attention: qkv must be contiguous and float32 or bfloat16 on a CPU, got ", qkv.scalar_type(),
              " with strides ", qkv.strides());
  const int64_t D = qkv.size(2) / (spec.heads + 2 * spec.kv_heads);
  if (rotary.cos.defined()) check_rotary(rotary, qkv, D);
  AttentionCall call{{.B = qkv.size(0), .T = qkv.size(1), .H = spec.heads, .KV = spec.kv_heads, .D = D},
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
  return Attention::apply(qkv, call);
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
  return qkv.is_cpu() ? attention_on_cpu(qkv, spec, rotary)
                      : aten_attention(split_heads(std::move(qkv), spec, rotary), spec);
}

}  // namespace gpt::ops
