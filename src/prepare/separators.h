// The lines that stand between documents in a text file, such as <|endoftext|> on a line of its own, and the same texts within lines, where
// they may be special tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/prepare/prepare_options.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::prepare {

// What document_separator says. `tokenizer`: null while it is still to be learned from the text. Throws gpt::Error(config) for what is
// no line.
std::vector<std::string> separators(const std::string& document_separator, const tokenizer::Tokenizer* tokenizer);

// How often the end of a text is written out in `text`, by any of these.
int64_t count_ends_in(std::string_view text, const std::vector<std::string>& ends);

// Calls take() with each stretch of the text between these names.
void between_names(std::string_view text, const std::vector<std::string>& names,
                   const std::function<void(std::string_view)>& take);

// The start of one of these names, or of what may become one beyond the end of the text, that lies across `cut`; else `cut`.
size_t name_across(std::string_view text, size_t cut, const std::vector<std::string>& names);

}  // namespace gpt::prepare
