#include "gpt/generate/decoder.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace gpt::generate {

Decoder::Decoder(const model::GPT& model, int64_t slots, at::ScalarType type, std::optional<int64_t> longest,
                 std::shared_ptr<const ops::RowAdapters> adapters)
    : model_(model),
      adapters_(std::move(adapters)),
      cache_(model.make_cache(slots, std::min(longest.value_or(model.config().block_size), model.config().block_size),
                              type)),
      texts_(slots) {}

std::optional<int64_t> Decoder::free_slot() const {
  const auto free = std::find(texts_.begin(), texts_.end(), std::nullopt);
  return free == texts_.end() ? std::nullopt : std::optional(free - texts_.begin());
}

std::optional<int64_t> Decoder::add(std::vector<int32_t> tokens, int64_t adapter) {
  TORCH_CHECK(!tokens.empty(), "Decoder: a text begins with at least one token");
  const std::optional<int64_t> slot = free_slot();
  if (!slot) return slot;
  texts_[*slot] = Text{.tokens = std::move(tokens), .adapter = adapter, .number = came_++};
  cache_.lengths[*slot] = 0;
  return slot;
}

std::optional<int64_t> Decoder::copy(int64_t slot) {
  const std::optional<int64_t> other = free_slot();
  if (!other) return other;
  texts_[*other] = texts_[slot];
  texts_[*other]->number = came_++;
  cache_.lengths[*other] = 0;
  model::copy_positions(cache_, slot, *other, 0, cache_.lengths[slot]);
  return other;
}

// A text of which more than a token is missing takes over what another one has of it, but for the last token, whose logits are wanted.
void Decoder::share() {
  const int64_t slots = std::ssize(texts_);
  for (int64_t slot = 0; slot < slots; ++slot) {
    if (!texts_[slot] || missing(slot) <= 1) continue;
    const std::vector<int32_t>& tokens = texts_[slot]->tokens;
    int64_t from = slot, most = cache_.lengths[slot];
    for (int64_t other = 0; other < slots; ++other) {
      if (!texts_[other] || other == slot || texts_[other]->adapter != texts_[slot]->adapter) continue;
      const int64_t there = std::min<int64_t>(cache_.lengths[other], std::ssize(tokens) - 1);
      const auto end = tokens.begin() + there;
      const int64_t same = std::mismatch(tokens.begin(), end, texts_[other]->tokens.begin()).first - tokens.begin();
      if (same > most) from = other, most = same;
    }
    // Copying little takes longer than it saves.
    constexpr int64_t kLeastCopied = 16;
    const int64_t copied = most - cache_.lengths[slot];
    if (copied > 0 && copied >= std::min(kLeastCopied, missing(slot) - 1))
      model::copy_positions(cache_, from, slot, cache_.lengths[slot], most);
  }
}

void Decoder::append(int64_t slot, int32_t token) { texts_[slot]->tokens.push_back(token); }

void Decoder::replace(int64_t slot, std::vector<int32_t> tokens) {
  TORCH_CHECK(!tokens.empty(), "Decoder: a text begins with at least one token");
  Text& text = *texts_[slot];
  const auto most = std::min(std::ssize(text.tokens), std::ssize(tokens));
  const auto same = std::mismatch(tokens.begin(), tokens.begin() + most, text.tokens.begin()).first - tokens.begin();
  // The last token is computed in any case: its logits are wanted.
  cache_.lengths[slot] = std::min({cache_.lengths[slot], same, std::ssize(tokens) - 1});
  text.tokens = std::move(tokens), text.cropped = 0;
}

void Decoder::remove(int64_t slot) { texts_[slot].reset(); }

bool Decoder::is_too_long(int64_t slot) const { return std::ssize(texts_[slot]->tokens) > cache_.capacity(); }

void Decoder::crop(int64_t slot) {
  Text& text = *texts_[slot];
  const int64_t length = std::ssize(text.tokens), kept = std::max<int64_t>(1, cache_.capacity() / 2);
  text.tokens.erase(text.tokens.begin(), text.tokens.end() - kept);
  text.cropped += length - kept;
  cache_.lengths[slot] = 0;
}

bool Decoder::computes_single_tokens() const {
  for (int64_t slot = 0; slot < std::ssize(texts_); ++slot)
    if (texts_[slot] && (missing(slot) > 1 || is_too_long(slot))) return false;
  return true;
}

std::vector<model::NextTokens> Decoder::choose() const {
  std::vector<model::NextTokens> next;
  std::vector<int64_t> longer;  // slots of texts of which more is missing
  for (int64_t slot = 0; slot < std::ssize(texts_); ++slot) {
    if (!texts_[slot] || missing(slot) == 0) continue;
    missing(slot) == 1 ? next.push_back({slot, {&texts_[slot]->tokens.back(), 1}}) : longer.push_back(slot);
  }
  if (longer.empty()) return next;
  const auto came = [this](int64_t a, int64_t b) { return texts_[a]->number < texts_[b]->number; };
  std::sort(longer.begin(), longer.end(), came);
  int64_t room = next.empty() ? std::max(kChunk, missing(longer[0])) : kChunk;
  for (const int64_t slot : longer) {
    const int64_t count = std::min(missing(slot), room);
    if (count == 0) break;
    next.push_back({slot, {texts_[slot]->tokens.data() + cache_.lengths[slot], static_cast<size_t>(count)}});
    room -= count;
  }
  return next;
}

// The rows of an adapter are then one product. The last text stays the last, because a part of one may be there.
void Decoder::order_by_adapter(std::vector<model::NextTokens>& texts) const {
  const auto adapter_of = [this](const model::NextTokens& text) { return texts_[text.slot]->adapter; };
  const int64_t last = adapter_of(texts.back());
  const auto place_of = [&](const model::NextTokens& text) {
    return std::pair(adapter_of(text) == last, adapter_of(text));
  };
  std::ranges::stable_sort(texts, {}, place_of);
}

std::vector<ops::RowAdapters::Rows> Decoder::rows_of(const std::vector<model::NextTokens>& texts) const {
  std::vector<ops::RowAdapters::Rows> rows;
  for (const model::NextTokens& text : texts) {
    const int64_t count = std::ssize(text.ids), adapter = texts_[text.slot]->adapter;
    if (rows.empty() || rows.back().adapter != adapter) rows.push_back({0, adapter});
    rows.back().count += count;
  }
  return rows;
}

Decoder::Next Decoder::step() {
  for (int64_t slot = 0; slot < std::ssize(texts_); ++slot)
    if (texts_[slot] && is_too_long(slot)) crop(slot);
  share();
  std::vector<model::NextTokens> next = choose();
  if (next.empty()) return {};
  order_by_adapter(next);
  const ops::RowAdapters::Scope scope(adapters_.get(), rows_of(next));
  Next result{.slots = {}, .logits = model_.forward_cached(next, cache_)};
  for (const model::NextTokens& text : next) result.slots.push_back(text.slot);
  // A part of a text comes last.
  if (missing(next.back().slot) == 0) return result;
  result.slots.pop_back();
  result.logits = result.slots.empty() ? at::Tensor() : result.logits.narrow(0, 0, std::ssize(result.slots));
  return result;
}

}  // namespace gpt::generate
