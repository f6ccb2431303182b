// The token that a text written by a model begins behind, where there is no prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gpt/data/token_file.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt {

// A token that training sees often, so that the model has learned what follows it: the end of a text, else a line break, else the
// most frequent token. Of a single book the only end of a text is its last token, which is never seen with something behind it.
// `sources`: what is trained on. Nothing where they are empty.
std::optional<int32_t> sample_start(const Tokenizer& tokenizer, const std::vector<Tokens>& sources);

}  // namespace gpt
