#include "cached_texts.h"

namespace gpt {

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

at::Tensor of_texts(const at::Tensor& x, const CachedTexts& texts) {
  return x[0]
      .narrow(0, texts.first, texts.count * texts.tokens)
      .unflatten(0, {texts.count, texts.tokens})
      .transpose(1, 2);
}

at::Tensor extended(const at::Tensor& cached, const CachedTexts& texts, const at::Tensor& x) {
  const at::Tensor slots = cached.narrow(0, texts.slot, texts.count);
  slots.narrow(2, texts.past, texts.tokens).copy_(x);
  return slots.narrow(2, 0, texts.past + texts.tokens);
}

}  // namespace gpt
