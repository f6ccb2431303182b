#include "gpt/ops/heads.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <optional>
#include <utility>

#include "float32_parameter.h"
#include "head_pass.h"
#include "kept.h"
#include "kernels.h"
#include "row_sums.h"

namespace gpt::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Split {
  int64_t H, KV;
  RotaryTables rotary;  // contiguous, or undefined
  HeadNorms norms;
  std::shared_ptr<RowSums> sums = nullptr;  // what a layer wants of the gradient
};

// The storage of a view has a second owner: the tensor that it is a view of, which autograd keeps.
bool is_held_by_nobody_else(const at::Tensor& x) {
  return x.use_count() == 1 && x.storage().use_count() == (x.is_view() ? 2 : 1) &&
         (!x.is_view() || x._base().use_count() == 1);
}

HeadNorms in_float32(const HeadNorms& norms) {
  return {ops::in_float32(norms.query, norms.offset), ops::in_float32(norms.key, norms.offset), norms.eps};
}

Heads parts_of(const at::Tensor& all, int64_t H, int64_t KV) {
  return {all.narrow(2, 0, H), all.narrow(2, H, KV), all.narrow(2, H + KV, KV)};
}

// (B, T, heads, D) of a packed (B, T, heads D).
at::Tensor by_head(const at::Tensor& packed, int64_t heads) {
  return packed.detach().view({packed.size(0), packed.size(1), heads, -1});
}

Heads compute(const Split& split, const at::Tensor& qkv, bool in_place) {
  const auto [H, KV] = std::pair(split.H, split.KV);
  Heads heads = parts_of(by_head(qkv, H + 2 * KV), H, KV);
  if (!split.rotary.cos.defined() && !split.norms.defined()) return heads;
  at::Tensor qk = by_head(qkv, H + 2 * KV).narrow(2, 0, H + KV);
  if (!in_place) qk = at::empty(qk.sizes(), qk.options());
  kernels_of(qkv)->join_heads({.rotary = split.rotary, .norms = in_float32(split.norms)}, heads.q, heads.k,
                              /*v=*/{}, qk);
  return {qk.narrow(2, 0, H), qk.narrow(2, H, KV), heads.v};
}

void add_norm_gradients(const HeadNorms& norms, const at::Tensor& packed, const at::Tensor& sums) {
  const bool of_queries = norms.query.is_trained(), of_keys = norms.key.is_trained();
  const DeviceKernels kernels = kernels_of(packed);
  if (of_queries && of_keys) return kernels->add_row_sums({norms.query, norms.key}, sums);
  if (of_queries) kernels->add_row_sums({norms.query}, sums);
  if (of_keys) kernels->add_row_sums({norms.key}, sums.narrow(1, 1, 1));
}

struct SplitHeads : torch::autograd::Function<SplitHeads> {
  static variable_list forward(AutogradContext* context, const at::Tensor& qkv,
                               const std::optional<at::Tensor>& /*of autograd*/,
                               const std::optional<at::Tensor>& /*of autograd*/, const Split& split, bool in_place) {
    keep(*context, Split{split.H, split.KV, split.rotary, split.norms, wanted_row_sums(qkv)});
    if (split.norms.defined()) context->save_for_backward({qkv});
    auto [q, k, v] = compute(split, qkv, in_place && !split.norms.defined());
    return {q, k, v};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto& [H, KV, rotary, norms, sums] = kept<Split>(*context);
    // As LibTorch's attention gives them: the positions of a head side by side, or the heads of a position.
    const auto in_rows = [](const at::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); };
    const at::Tensor q = in_rows(gradients[0]), k = in_rows(gradients[1]), v = in_rows(gradients[2]);
    const int64_t B = q.size(0), T = q.size(1), D = q.size(3);
    const at::Tensor packed = at::empty({B, T, H + 2 * KV, D}, q.options());
    HeadPass pass{.direction = -1, .rotary = rotary, .norms = in_float32(norms), .sums_rows = sums != nullptr};
    if (norms.defined()) pass.raw = by_head(context->get_saved_variables()[0], H + 2 * KV);
    const HeadSums found = kernels_of(packed)->join_heads(pass, q, k, v, packed);
    const at::Tensor gradient = packed.view({B, T, -1});
    give_row_sums(sums, gradient, found.of_rows);
    if (norms.defined()) add_norm_gradients(norms, packed, found.of_norms);
    return {gradient, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

void check_head_norms(const HeadNorms& norms, const at::Tensor& qkv, int64_t D) {
  if (!norms.defined()) return;
  for (const parameters::Parameter& weight : {norms.query, norms.key})
    TORCH_CHECK(weight.defined() && weight.value().sizes() == at::IntArrayRef({D}) &&
                    weight.value().device() == qkv.device(),
                "heads: norms of heads ", D, " wide on ", qkv.device(), " have so many weights there each");
}

at::Tensor normed_heads(const at::Tensor& qkv, const AttentionSpec& spec) {
  const auto [q, k, v] = parts_of(by_head(qkv, spec.heads + 2 * spec.kv_heads), spec.heads, spec.kv_heads);
  const at::Tensor packed = at::empty_like(qkv);
  kernels_of(qkv)->join_heads({.norms = in_float32(spec.norms)}, q, k, v,
                              by_head(packed, spec.heads + 2 * spec.kv_heads));
  return packed;
}

void differentiate_normed_heads(const at::Tensor& qkv, const AttentionSpec& spec, const at::Tensor& gradient) {
  const int64_t heads = spec.heads + 2 * spec.kv_heads;
  const at::Tensor packed = by_head(gradient, heads);
  const auto [q, k, v] = parts_of(packed, spec.heads, spec.kv_heads);
  const HeadPass pass{.direction = -1, .norms = in_float32(spec.norms), .raw = by_head(qkv, heads)};
  add_norm_gradients(spec.norms, packed, kernels_of(packed)->join_heads(pass, q, k, /*v=*/{}, packed).of_norms);
}

Heads split_heads(at::Tensor qkv, const AttentionSpec& spec, const RotaryTables& rotary) {
  const int64_t heads = spec.heads + 2 * spec.kv_heads;
  TORCH_CHECK(spec.heads > 0 && spec.kv_heads > 0 && qkv.dim() == 3 && qkv.size(2) % heads == 0 && qkv.numel() > 0,
              "heads: qkv must be (B, T, ", heads, " D), got ", qkv.sizes());
  check_kernel_type("heads", qkv);
  check_head_norms(spec.norms, qkv, qkv.size(2) / heads);
  Split split{spec.heads, spec.kv_heads, {}, spec.norms};
  if (rotary.cos.defined()) {
    check_rotary(rotary, qkv, qkv.size(2) / heads);
    split.rotary = {rotary.cos.contiguous(), rotary.sin.contiguous()};
  }
  if (!qkv.is_contiguous()) qkv = qkv.contiguous();
  const bool in_place = is_held_by_nobody_else(qkv);
  if (!at::GradMode::is_enabled()) return compute(split, qkv, in_place);
  const auto parts = SplitHeads::apply(qkv, parameters::trained_value(spec.norms.query),
                                       parameters::trained_value(spec.norms.key), split, in_place);
  return {parts[0], parts[1], parts[2]};
}

}  // namespace gpt::ops
