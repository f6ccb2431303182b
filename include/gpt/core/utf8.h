// Strict UTF-8: overlong forms, surrogates, values above U+10FFFF and truncated sequences are not characters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gpt::utf8 {

constexpr char32_t kCodePoints = 0x110000;

// What starts at `offset` < text.size(): a character, the beginning of one that the end of the text cuts off, or neither.
// For a broken sequence `bytes` follows Unicode's "maximal subpart" practice, like decoders that insert replacements.
struct Scan {
  enum Kind { whole, unfinished, broken } kind;
  size_t bytes;
  char32_t value;  // the character, where the sequence is whole
};
Scan scan(std::string_view text, size_t offset);

bool is_valid(std::string_view text);

// All bytes of a character but the first are of the form 10xxxxxx.
inline bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// Where the last character of `text` begins: a place to cut without splitting a character. 0 if there is none.
size_t last_character(std::string_view text);

// Appends `value` (a code point that is not a surrogate) to `text`.
void append(std::string& text, char32_t value);

}  // namespace gpt::utf8
