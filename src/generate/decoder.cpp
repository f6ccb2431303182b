#include "gpt/generate/decoder.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace gpt {

Decoder::Decoder(const GPT& model, int64_t slots, at::ScalarType type)
    : model_(model), cache_(model.make_cache(slots, model.config().block_size, type)), texts_(slots) {}

std::optional<int64_t> Decoder::free_slot() const {
  const auto free = std::find(texts_.begin(), texts_.end(), std::nullopt);
  return free == texts_.end() ? std::nullopt : std::optional(free - texts_.begin());
}

std::optional<int64_t> Decoder::add(std::vector<int32_t> tokens) {
  TORCH_CHECK(!tokens.empty(), "Decoder: a text begins with at least one token");
  const std::optional<int64_t> slot = free_slot();
  if (!slot) return slot;
  texts_[*slot] = Text{.tokens = std::move(tokens), .number = came_++};
  cache_.lengths[*slot] = 0;
  return slot;
}

std::optional<int64_t> Decoder::copy(int64_t slot) {
  const std::optional<int64_t> other = free_slot();
  if (!other) return other;
  texts_[*other] = texts_[slot];
  texts_[*other]->number = came_++;
  const int64_t length = cache_.lengths[*other] = cache_.lengths[slot];
  for (const auto* tensors : {&cache_.keys, &cache_.values}) {
    for (const at::Tensor& of_layer : *tensors)
      of_layer[*other].narrow(1, 0, length).copy_(of_layer[slot].narrow(1, 0, length));
  }
  return other;
}

void Decoder::append(int64_t slot, int32_t token) { texts_[slot]->tokens.push_back(token); }

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

std::vector<NextTokens> Decoder::choose() const {
  std::vector<NextTokens> next;
  std::optional<int64_t> first;
  for (int64_t slot = 0; slot < std::ssize(texts_); ++slot) {
    if (!texts_[slot] || missing(slot) == 0) continue;
    if (missing(slot) == 1) {
      next.push_back({slot, {&texts_[slot]->tokens.back(), 1}});
    } else if (!first || texts_[slot]->number < texts_[*first]->number) {
      first = slot;
    }
  }
  if (first) {
    const int64_t count = next.empty() ? missing(*first) : std::min(missing(*first), kChunk);
    next.push_back({*first, {texts_[*first]->tokens.data() + cache_.lengths[*first], static_cast<size_t>(count)}});
  }
  return next;
}

Decoder::Next Decoder::step() {
  for (int64_t slot = 0; slot < std::ssize(texts_); ++slot)
    if (texts_[slot] && is_too_long(slot)) crop(slot);
  const std::vector<NextTokens> next = choose();
  if (next.empty()) return {};
  Next result{.slots = {}, .logits = model_.forward_cached(next, cache_)};
  for (const NextTokens& text : next) result.slots.push_back(text.slot);
  // The part of a prompt comes last.
  if (missing(next.back().slot) == 0) return result;
  result.slots.pop_back();
  result.logits = result.slots.empty() ? at::Tensor() : result.logits.narrow(0, 0, std::ssize(result.slots));
  return result;
}

}  // namespace gpt
