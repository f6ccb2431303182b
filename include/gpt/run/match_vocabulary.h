// The rows of a vocabulary for another tokenizer.
#pragma once

#include <cstdint>

#include "gpt/config/model_config.h"
#include "gpt/parameters/named_tensors.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::run {

// How many tokens of the new tokenizer have a row of the old one's, how many are new, and how many old rows nobody needs any more.
struct MatchedVocabulary {
  int64_t kept = 0, added = 0, dropped = 0;
};

// Embedding and untied head of `weights`, whose ids are those of `from`, become those of `model`, whose ids are those of `to`: a token keeps
// the row of the token with the same text, special tokens that of the special one, and the token that ends a text that of its like whatever
// its name. A new token gets the mean of all old ones (Hewitt, 2021, "Initializing New Word Embeddings for Pretrained Language Models").
MatchedVocabulary match_vocabulary(parameters::NamedTensors& weights, const ModelConfig& model,
                                   const tokenizer::Tokenizer& from, const tokenizer::Tokenizer& to);

// The same for more ids than `from` has, which keeps its own: the rows of those up to `tokens` are the mean of its rows, and further ones of
// `model` stay as they are, or are 0.
void extend_vocabulary(parameters::NamedTensors& weights, const ModelConfig& model, int64_t from, int64_t tokens);

}  // namespace gpt::run
