// From the text of a prompt to the tokens that the model continues.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "gpt/tokenizer/tokenizer.h"

namespace gpt {

// At least one token: an empty prompt is `start`, the token that samples of this model begin behind, or where that is not known
// the end of a text, else a newline. The text of a special token becomes its
// id. Throws gpt::Error(data) naming the first character that the vocabulary lacks, and the characters that it has. `name`: what
// that message calls the prompt.
std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view prompt,
                                   std::string_view name = "prompt", std::optional<int32_t> start = {});

}  // namespace gpt
