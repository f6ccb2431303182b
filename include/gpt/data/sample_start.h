// What a text written by a model begins behind, where there is no prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/data/token_file.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::data {

// A token that training sees often, so that the model has learned what follows it: the end of a text, else a line break, else the
// most frequent token. Of a single book the only end of a text is its last token, which is never seen with something behind it.
// `sources`: what is trained on. Nothing where they are empty.
std::optional<int32_t> sample_start(const tokenizer::Tokenizer& tokenizer, const std::vector<Tokens>& sources);

// A conversation up to the first words that are learned, with the text of its special tokens, and the token that ends a turn. `tokens` have
// marks, and the first conversation is taken. Nothing where that is learned from its second token on.
struct Opening {
  std::string text;
  std::optional<int32_t> end = {};
};
Opening opening(const tokenizer::Tokenizer& tokenizer, const Tokens& tokens);

}  // namespace gpt::data
