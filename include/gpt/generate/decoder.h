// Texts that grow token by token, several at once and each at a length of its own: generation, samples and a server share it. A text has
// a slot of the KV cache, which is used again once it is removed; nothing is moved. A context longer than block_size keeps its last half,
// which is computed again: positions begin anew, so nothing in the cache is ever out of place.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gpt/model/gpt.h"
#include "gpt/ops/row_adapters.h"

namespace gpt::generate {

class Decoder {
 public:
  // While others get one token each, prompts are computed in parts of so many tokens, so that they do not hold the others up.
  static constexpr int64_t kChunk = 256;

  // `model` must outlive it. `slots`: how many texts there may be at once. `type`: that of the cache, the compute type. `longest`: the
  // tokens that a text can come to, where that is known; the cache then has room for no more. `adapters`: operators of the model that texts
  // may have adapters of; null: there are none.
  Decoder(const model::GPT& model, int64_t slots, at::ScalarType type, std::optional<int64_t> longest = std::nullopt,
          std::shared_ptr<const ops::RowAdapters> adapters = nullptr);

  // A text that begins with these tokens, at least one, and is computed with this adapter. Returns its slot; nothing where none is free.
  std::optional<int64_t> add(std::vector<int32_t> tokens, int64_t adapter = ops::RowAdapters::kNone);
  // Another text like that of a slot, of which nothing is computed again.
  std::optional<int64_t> copy(int64_t slot);
  void append(int64_t slot, int32_t token);  // to a text whose last token has been computed
  // These tokens, at least one, take the place of a slot's: what both begin with is not computed again.
  void replace(int64_t slot, std::vector<int32_t> tokens);
  void remove(int64_t slot);

  const std::vector<int32_t>& tokens(int64_t slot) const { return texts_[slot]->tokens; }  // its context
  int64_t cropped(int64_t slot) const { return texts_[slot]->cropped; }  // how many tokens fell out of it

  // Whether all that step() will compute is a token of each text.
  bool computes_single_tokens() const;

  // The texts whose last token has been computed now, and the logits (texts, V) after it.
  struct Next {
    std::vector<int64_t> slots;
    at::Tensor logits;  // undefined without texts
  };
  // Computes the last token of each text that has got one, and of those of which more is missing, in the order in which they came, kChunk
  // tokens; where there are no others, all of the first one. What another text of the same adapter that begins in the same way has computed is
  // copied instead, so that several texts of one prompt compute it once. Under inference mode and the autocast of the caller.
  Next step();

 private:
  struct Text {
    std::vector<int32_t> tokens;
    int64_t adapter = ops::RowAdapters::kNone;
    int64_t cropped = 0;
    int64_t number = 0;  // in the order in which they came
  };

  bool is_too_long(int64_t slot) const;  // for the cache
  void crop(int64_t slot);
  int64_t missing(int64_t slot) const { return std::ssize(texts_[slot]->tokens) - cache_.lengths[slot]; }
  void share();
  std::optional<int64_t> free_slot() const;
  std::vector<model::NextTokens> choose() const;
  void order_by_adapter(std::vector<model::NextTokens>& texts) const;
  std::vector<ops::RowAdapters::Rows> rows_of(const std::vector<model::NextTokens>& texts) const;

  const model::GPT& model_;
  std::shared_ptr<const ops::RowAdapters> adapters_;
  model::KvCache cache_;
  std::vector<std::optional<Text>> texts_;  // by slot
  int64_t came_ = 0;
};

}  // namespace gpt::generate
