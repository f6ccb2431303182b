// More special tokens for a tokenizer: a model that has learned texts alone gets those of a dialogue.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "gpt/tokenizer/tokenizer.h"

namespace gpt::tokenizer {

// The tokens as tokenizer.json of Hugging Face's tokenizers lists them.
nlohmann::ordered_json added_tokens(std::span<const SpecialToken> tokens);

bool has_special_token(const Tokenizer& tokenizer, const std::string& text);

// The tokenizer with these texts as further tokens behind all ids that it has, in their order. Texts have the ids that they had. Throws
// gpt::Error(config), which names the token, where the vocabulary has it as an ordinary one.
std::unique_ptr<Tokenizer> with_special_tokens(const Tokenizer& tokenizer, const std::vector<std::string>& texts);

// Special tokens of `tokenizer` behind the ids that `base` has.
std::vector<std::string> special_tokens_beyond(const Tokenizer& base, const Tokenizer& tokenizer);

// Throws gpt::Error(checkpoint) if `spec` is gpt2 or a file and names another tokenizer than the one with the JSON `saved`,
// which is that of a checkpoint: a run continues with it, so another one would be ignored or give the ids another meaning. Special tokens that
// the run has added make no other one of it.
void require_same_tokenizer(const std::string& spec, const std::string& saved);

}  // namespace gpt::tokenizer
