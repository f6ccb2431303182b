// GPT-2's printable alphabet: vocabulary files spell each byte of a token as one visible character, so that a token has
// no spaces and is always text. Visible Latin-1 characters stand for themselves, the other 68 bytes for U+0100 and up.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gpt::byte_alphabet {

char32_t character(unsigned char byte);
std::string spell(std::string_view bytes);
// The inverse of spell(); nothing if `spelling`, which is UTF-8, has a character outside the alphabet.
std::optional<std::string> bytes(std::string_view spelling);

}  // namespace gpt::byte_alphabet
