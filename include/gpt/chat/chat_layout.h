// How conversations are laid out for a model that is to learn them: a template, named or the model's own, and the special tokens that it needs.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/tokenizer/text_format.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::chat {

inline constexpr std::string_view kOwnTemplate = "auto";  // the model's, or ChatML where it has none

// Jinja, of what `name` says: the name of a family (chatml, llama2, llama3, zephyr, alpaca, plain) or a file. Throws gpt::Error(config).
std::string template_source(const std::string& name);

struct ChatLayout {
  tokenizer::TextFormat format;  // with the template, and what ends its turns among its ends
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::vector<std::string> added;  // tokens that it was given, for the turns of the template or for the end of a text
};

// `source` is a template in Jinja. For the one that the format has already nothing is added. Throws as with_special_tokens() and ChatTemplate do.
ChatLayout lay_out(std::string source, tokenizer::TextFormat format,
                   std::shared_ptr<const tokenizer::Tokenizer> tokenizer);

// The same for `name`, which template_source() knows, or kOwnTemplate.
ChatLayout lay_out_as(const std::string& name, const tokenizer::TextFormat& format,
                      std::shared_ptr<const tokenizer::Tokenizer> tokenizer);

}  // namespace gpt::chat
