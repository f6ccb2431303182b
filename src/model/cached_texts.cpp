#include "cached_texts.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "gpt/ops/aten_attention.h"

namespace gpt::model {

TextsOfPass arranged(std::span<const NextTokens> texts, const KvCache& cache) {
  TextsOfPass arranged;
  int64_t first = 0;
  for (const auto& [slot, ids] : texts) {
    TORCH_CHECK(slot >= 0 && slot < std::ssize(cache.lengths) && !ids.empty(), "GPT: ", ids.size(), " tokens for slot ",
                slot, " of a cache of ", cache.lengths.size());
    const int64_t past = cache.lengths[static_cast<size_t>(slot)], tokens = std::ssize(ids);
    TORCH_CHECK(past + tokens <= cache.capacity(), "GPT: the cache holds ", past, " of ", cache.capacity(),
                " positions, no room for ", tokens, " more");
    CachedTexts* const last = arranged.groups.empty() ? nullptr : &arranged.groups.back();
    if (cache.attention_block > 0 || (cache.keys.front().is_cpu() && tokens <= ops::kMostFewTokens)) {
      arranged.few.push_back({.slot = slot, .past = past, .count = tokens, .first = first});
    } else if (last && slot == last->slot + last->count && past == last->past && tokens == last->tokens &&
               first == last->first + last->count * tokens) {
      ++last->count;
    } else {
      arranged.groups.push_back({slot, 1, past, tokens, first});
    }
    first += tokens;
  }
  return arranged;
}

void copy_positions(KvCache& cache, int64_t from, int64_t to, int64_t begin, int64_t end) {
  const auto copy = [from, to](const std::vector<at::Tensor>& tensors, int64_t first, int64_t last) {
    for (const at::Tensor& x : tensors)
      x[to].narrow(1, first, last - first).copy_(x[from].narrow(1, first, last - first));
  };
  copy(cache.keys, begin, end);
  copy(cache.values, begin, end);
  copy(cache.means, cache.blocks_in(begin), cache.blocks_in(end));
  cache.lengths[static_cast<size_t>(to)] = end;
}

namespace {

// (count, heads, tokens, D) of x (1, tokens of all texts, heads, D).
at::Tensor of_texts(const at::Tensor& x, const CachedTexts& texts) {
  return x[0]
      .narrow(0, texts.first, texts.count * texts.tokens)
      .unflatten(0, {texts.count, texts.tokens})
      .transpose(1, 2);
}

// What of a layer's keys or values these texts look at, the new ones among them: (count, kv heads, past + tokens, D).
at::Tensor extended(const at::Tensor& cached, const CachedTexts& texts, const at::Tensor& x) {
  const at::Tensor slots = cached.narrow(0, texts.slot, texts.count);
  slots.narrow(2, texts.past, texts.tokens).copy_(x);
  return slots.narrow(2, 0, texts.past + texts.tokens);
}

// Attention of queries whose positions are the last of these keys and values; all are (count, heads, positions, D).
at::Tensor attend_to_last(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const ops::AttentionSpec& spec) {
  const int64_t tokens = q.size(2), before = k.size(2) - tokens;
  // is_causal aligns the mask to the top left corner, which is right only with nothing before. A single query needs no mask: it sees all
  // keys.
  const bool is_causal = before == 0 && (spec.window == 0 || spec.window >= tokens);
  std::optional<at::Tensor> mask;
  if (!is_causal && tokens > 1) mask = ops::visible_positions(tokens, before, spec.window, q.device());
  return at::scaled_dot_product_attention(q, k, v, mask, /*dropout_p=*/0.0, is_causal, std::nullopt,
                                          spec.kv_heads < spec.heads);
}

}  // namespace

at::Tensor attend_to_past(const ops::Heads& heads, const at::Tensor& keys, const at::Tensor& values,
                          const CachedTexts& texts, const ops::AttentionSpec& spec) {
  constexpr int64_t kLeastQueries = 128;  // that look into a cache at a time: fewer make small products
  const auto [count, past, tokens] = std::tuple(texts.count, texts.past, texts.tokens);
  const at::Tensor q = of_texts(heads.q, texts), k = extended(keys, texts, of_texts(heads.k, texts)),
                   v = extended(values, texts, of_texts(heads.v, texts));
  // With a window, some queries at a time look at the positions that one of them sees.
  const int64_t at_a_time = spec.window > 0 ? std::max(kLeastQueries, spec.window) : tokens;
  std::vector<at::Tensor> parts;
  for (int64_t begin = 0; begin < tokens; begin += at_a_time) {
    const int64_t queries = std::min(at_a_time, tokens - begin), end = past + begin + queries,
                  first = spec.window > 0 ? std::max<int64_t>(0, past + begin + 1 - spec.window) : 0;
    parts.push_back(attend_to_last(q.narrow(2, begin, queries), k.narrow(2, first, end - first),
                                   v.narrow(2, first, end - first), spec));
  }
  const at::Tensor y = parts.size() == 1 ? parts[0] : at::cat(parts, 2);
  return y.transpose(1, 2).flatten(2).view({1, count * tokens, -1});
}

}  // namespace gpt::model
