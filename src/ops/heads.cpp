#include "gpt/ops/heads.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <utility>

#include "kept.h"
#include "kernels.h"
#include "row_sums.h"

namespace gpt::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Split {
  int64_t H, KV;
  RotaryTables rotary;                      // contiguous, or undefined
  std::shared_ptr<RowSums> sums = nullptr;  // what a layer wants of the gradient
};

// The storage of a view has a second owner: the tensor that it is a view of, which autograd keeps.
bool is_held_by_nobody_else(const at::Tensor& x) {
  return x.use_count() == 1 && x.storage().use_count() == (x.is_view() ? 2 : 1) &&
         (!x.is_view() || x._base().use_count() == 1);
}

Heads compute(const Split& split, const at::Tensor& qkv, bool in_place) {
  const auto& [H, KV, rotary, sums] = split;
  const int64_t B = qkv.size(0), T = qkv.size(1), D = qkv.size(2) / (H + 2 * KV);
  const at::Tensor all = qkv.detach().view({B, T, H + 2 * KV, D});
  at::Tensor qk = all.narrow(2, 0, H + KV);
  if (rotary.cos.defined()) {
    const at::Tensor q = qk.narrow(2, 0, H), k = qk.narrow(2, H, KV);
    if (!in_place) qk = at::empty(qk.sizes(), qk.options());
    kernels_of(qkv)->join_heads(rotary, 1, q, k, /*v=*/{}, qk, /*sums_rows=*/false);
  }
  return {qk.narrow(2, 0, H), qk.narrow(2, H, KV), all.narrow(2, H + KV, KV)};
}

struct SplitHeads : torch::autograd::Function<SplitHeads> {
  static variable_list forward(AutogradContext* context, const at::Tensor& qkv, const Split& split, bool in_place) {
    keep(*context, Split{split.H, split.KV, split.rotary, wanted_row_sums(qkv)});
    auto [q, k, v] = compute(split, qkv, in_place);
    return {q, k, v};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto& [H, KV, rotary, sums] = kept<Split>(*context);
    // As LibTorch's attention gives them: the positions of a head side by side, or the heads of a position.
    const auto in_rows = [](const at::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); };
    const at::Tensor q = in_rows(gradients[0]), k = in_rows(gradients[1]), v = in_rows(gradients[2]);
    const int64_t B = q.size(0), T = q.size(1), D = q.size(3);
    const at::Tensor packed = at::empty({B, T, H + 2 * KV, D}, q.options());
    const at::Tensor parts = kernels_of(packed)->join_heads(rotary, -1, q, k, v, packed, sums != nullptr),
                     gradient = packed.view({B, T, -1});
    give_row_sums(sums, gradient, parts);
    return {gradient, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

Heads split_heads(at::Tensor qkv, const AttentionSpec& spec, const RotaryTables& rotary) {
  const int64_t heads = spec.heads + 2 * spec.kv_heads;
  TORCH_CHECK(spec.heads > 0 && spec.kv_heads > 0 && qkv.dim() == 3 && qkv.size(2) % heads == 0 && qkv.numel() > 0,
              "heads: qkv must be (B, T, ", heads, " D), got ", qkv.sizes());
  check_kernel_type("heads", qkv);
  Split split{spec.heads, spec.kv_heads, {}};
  if (rotary.cos.defined()) {
    check_rotary(rotary, qkv, qkv.size(2) / heads);
    split.rotary = {rotary.cos.contiguous(), rotary.sin.contiguous()};
  }
  if (!qkv.is_contiguous()) qkv = qkv.contiguous();
  const bool in_place = is_held_by_nobody_else(qkv);
  if (!at::GradMode::is_enabled()) return compute(split, qkv, in_place);
  const auto parts = SplitHeads::apply(qkv, split, in_place);
  return {parts[0], parts[1], parts[2]};
}

}  // namespace gpt::ops
