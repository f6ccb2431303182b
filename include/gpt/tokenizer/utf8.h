// UTF-8 that has to be valid because a tokenizer reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "gpt/core/utf8.h"

namespace gpt::utf8 {

struct CodePoint {
  char32_t value;
  size_t bytes;  // 1..4
};

// The code point that starts at `offset` < text.size(). Throws InvalidUtf8.
CodePoint decode(std::string_view text, size_t offset);

// "'é' (U+00E9)", or "U+000A" for what a terminal would not show.
std::string describe(char32_t value);

// The first `count` characters of `text`, or all of it if it has fewer.
std::string_view prefix(std::string_view text, int64_t count);

}  // namespace gpt::utf8
