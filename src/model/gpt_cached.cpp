// Generation: tokens of several texts at a time, each with the keys and values of what is before it.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <array>
#include <utility>
#include <vector>

#include "cached_texts.h"
#include "gpt/model/gpt.h"
#include "transformer.h"

namespace gpt::model {
namespace transformer {
namespace {

// The same as Transformer::embed() for tokens with these positions (N).
at::Tensor embed_at(const Transformer& model, const at::Tensor& ids, const at::Tensor& positions, const Pass& pass) {
  const ops::InPart part(ops::part::kEmbedding);
  const at::Tensor x = pass.ops->embedding(ids, model.wte, /*positions=*/{}, /*starts=*/{}, /*dropout=*/{});
  return model.scaled(model.wpe.defined() ? x + model.wpe.compute_value().index_select(0, positions) : x);
}

// The keys and values that one layer has seen so far, and where the next ones go.
struct LayerCache {
  at::Tensor keys, values;  // (slots, kv heads, capacity, D)
  at::Tensor means;         // (slots, kv heads, blocks, D), where queries choose blocks
  const TextsOfPass& texts;
};

// The keys and values go into the cache, and the queries see all that is there of their text.
at::Tensor attend_to(const LayerCache& cache, const Attention& attention, at::Tensor qkv, const Pass& pass) {
  const ops::AttentionSpec& spec = attention.spec;
  const ops::Heads heads = pass.ops->split_heads(std::move(qkv), spec, pass.rotary[attention.rotation]);
  const auto& [few, groups] = cache.texts;  // where queries choose blocks, all texts are among the first
  if (few.empty() && groups.size() == 1) return attend_to_past(heads, cache.keys, cache.values, groups[0], spec);
  const at::Tensor y =
      at::empty({1, heads.q.size(1), heads.q.size(2) * heads.q.size(3)}, heads.q.options());  // (1, N, H D)
  if (spec.blocks.top > 0)
    ops::cached_chosen_attention(heads, cache.keys, cache.values, cache.means, few, y, spec.blocks);
  else if (!few.empty())
    ops::cached_attention(heads, cache.keys, cache.values, few, y, spec.window);
  for (const CachedTexts& texts : groups)
    y.narrow(1, texts.first, texts.count * texts.tokens)
        .copy_(attend_to_past(heads, cache.keys, cache.values, texts, spec));
  return y;
}

Stream with_cache(const Block& block, const Stream& in, const Pass& pass, const LayerCache& cache) {
  const auto [x, normed] = block.enter(block.ln_1, in, pass);
  at::Tensor qkv = block.attn.queries_keys_values(normed, pass);
  return block.after_attention(x, attend_to(cache, block.attn, std::move(qkv), pass), pass);
}

}  // namespace
}  // namespace transformer

at::Tensor GPT::forward_cached(std::span<const NextTokens> texts, KvCache& cache) const {
  const TextsOfPass of_pass = arranged(texts, cache);
  std::vector<int64_t> of_tokens, at_positions, at_ends;
  for (const auto& [slot, ids] : texts) {
    int64_t& length = cache.lengths[static_cast<size_t>(slot)];
    of_tokens.insert(of_tokens.end(), ids.begin(), ids.end());
    for (size_t i = 0; i < ids.size(); ++i) at_positions.push_back(length++);
    at_ends.push_back(std::ssize(of_tokens) - 1);
  }
  const auto on_device = [&](const std::vector<int64_t>& values) { return at::tensor(values).to(device()); };
  const at::Tensor positions = on_device(at_positions);
  const transformer::Pass pass{operators_, transformer_->rotations.at(positions)};
  transformer::Stream stream;  // (1, N, C)
  if (part_.is_first_stage()) {
    stream.x = transformer::embed_at(*transformer_, on_device(of_tokens).unsqueeze(0), positions, pass);
  } else {
    link_->receive(stream.x = empty_stream({1, std::ssize(of_tokens), config_.n_embd}));
  }
  for (size_t layer = 0; layer < transformer_->h.size(); ++layer) {
    if (layer_weights_) layer_weights_->before_forward(layers_.begin + static_cast<int64_t>(layer));
    stream = transformer::with_cache(transformer_->h[layer], stream, pass,
                                     {cache.keys[layer], cache.values[layer], cache.means[layer], of_pass});
  }
  const std::array sizes{std::ssize(texts), *config_.vocab_size};
  if (!part_.is_last_stage()) {
    link_->send(transformer_->leave(stream, pass));
    return shared({}, sizes);
  }
  for (at::Tensor* part : {&stream.x, &stream.branch}) *part = part->select(0, 0);
  if (at_ends.size() < of_tokens.size()) {  // else each token is the last of its text
    const at::Tensor ends = on_device(at_ends);
    for (at::Tensor* part : {&stream.x, &stream.branch}) *part = part->index_select(0, ends);
  }
  return shared(logits(transformer_->leave(stream, pass)), sizes);
}

KvCache GPT::make_cache(int64_t slots, int64_t capacity, at::ScalarType dtype) const {
  TORCH_CHECK(capacity <= config_.block_size, "GPT: a cache of ", capacity, " positions exceeds block_size ",
              config_.block_size);
  KvCache cache{.lengths = std::vector<int64_t>(static_cast<size_t>(slots))};
  const auto options = at::TensorOptions().device(device()).dtype(dtype);
  const int64_t heads = config_.kv_heads() / part_.size, D = config_.head_dim();
  if (config_.top_blocks() > 0) cache.attention_block = config_.attention_block;
  for (int64_t layer = 0; layer < layers_.count(); ++layer) {
    for (auto* const of : {&cache.keys, &cache.values}) of->push_back(at::empty({slots, heads, capacity, D}, options));
    cache.means.push_back(at::empty({slots, heads, cache.blocks_in(capacity), D}, options.dtype(at::kFloat)));
  }
  return cache;
}

}  // namespace gpt::model
