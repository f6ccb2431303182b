// Strict UTF-8: overlong forms, surrogates, values above U+10FFFF and truncated sequences are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpt::utf8 {

constexpr char32_t kCodePoints = 0x110000;

struct CodePoint {
  char32_t value;
  size_t bytes;  // 1..4
};

// What starts at `offset` < text.size(): a character, the beginning of one that the end of the text cuts off, or neither.
// For a broken sequence `bytes` follows Unicode's "maximal subpart" practice, like decoders that insert replacements.
struct Scan {
  enum Kind { whole, unfinished, broken } kind;
  size_t bytes;
  char32_t value;  // of a whole one
};
Scan scan(std::string_view text, size_t offset);

// The code point that starts at `offset` < text.size(). Throws InvalidUtf8.
CodePoint decode(std::string_view text, size_t offset);

// All bytes of a character but the first are of the form 10xxxxxx.
inline bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// Where the last character of `text` begins: a place to cut without splitting a character. 0 if there is none.
size_t last_character(std::string_view text);

// Appends `value` (a code point that is not a surrogate) to `text`.
void append(std::string& text, char32_t value);

// "'é' (U+00E9)", or "U+000A" for what a terminal would not show.
std::string describe(char32_t value);

// The first `count` characters of `text`, or all of it if it has fewer.
std::string_view prefix(std::string_view text, int64_t count);

}  // namespace gpt::utf8
