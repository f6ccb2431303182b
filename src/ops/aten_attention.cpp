#include "gpt/ops/aten_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "gpt/ops/sdp_backends.h"

namespace gpt::ops {
namespace {

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

}  // namespace gpt::ops
