// The source of a template as texts and, between them, the tokens of its tags, with the white space around tags taken away as they and the
// settings trim_blocks and lstrip_blocks say.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpt::jinja {

struct Token {
  enum Kind { text, begin_output, end_output, begin_block, end_block, name, string, integer, real, sign, end } kind;
  std::string value;  // of a string: without quotes and escapes
  int line = 1;

  bool is(Kind wanted, std::string_view what) const { return kind == wanted && value == what; }
};

// Ends with one of kind `end`. Throws TemplateError.
std::vector<Token> read_tokens(std::string_view source);

}  // namespace gpt::jinja
