// From the text of a prompt to the tokens that the model continues.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "gpt/tokenizer/tokenizer.h"

namespace gpt::generate {

// What a prompt begins with.
struct PromptStart {
  std::optional<int32_t> alone =
      {};  // an empty prompt: the token that samples of this model begin behind, where that is known
  std::vector<int32_t> prefix = {};  // as TextFormat has it
};

// At least one token. A prompt begins with the prefix, unless it does so already; an empty one is that, or where there is none
// `start.alone`, the end of a text, else a newline. The text of a special token becomes its id. Throws gpt::Error(data) naming the first
// character that the vocabulary lacks, and the characters that it has. `name`: what that message calls the prompt.
std::vector<int32_t> encode_prompt(const tokenizer::Tokenizer& tokenizer, std::string_view prompt,
                                   std::string_view name = "prompt", const PromptStart& start = {});

// `ids` behind the prefix, unless they begin with it already.
std::vector<int32_t> with_prefix(const std::vector<int32_t>& prefix, std::vector<int32_t> ids);

}  // namespace gpt::generate
