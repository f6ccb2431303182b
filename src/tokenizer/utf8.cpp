#include "gpt/tokenizer/utf8.h"

#include <fmt/format.h>

#include "gpt/core/printable.h"
#include "gpt/tokenizer/text_error.h"

namespace gpt::utf8 {
namespace {

[[noreturn]] void fail(std::string_view text, size_t offset) {
  throw tokenizer::InvalidUtf8(
      offset, fmt::format("0x{:02X} is not valid UTF-8", static_cast<unsigned char>(text[offset])),
      "convert the text to UTF-8 (iconv -f WINDOWS-1252 -t UTF-8, where it is from Western Europe or America), or use --tokenizer byte or bpe:N");
}

}  // namespace

CodePoint decode(std::string_view text, size_t offset) {
  const auto [kind, bytes, value] = scan(text, offset);
  if (kind != Scan::whole) fail(text, offset);
  return {value, bytes};
}

std::string describe(char32_t value) {
  const std::string number = fmt::format("U+{:04X}", static_cast<uint32_t>(value));
  if (commands_terminal(value) || value == '\n' || value == '\t') return number;
  std::string text;
  append(text, value);
  return fmt::format("'{}' ({})", text, number);
}

std::string_view prefix(std::string_view text, int64_t count) {
  size_t offset = 0;
  for (int64_t i = 0; i < count && offset < text.size(); ++i) offset += decode(text, offset).bytes;
  return text.substr(0, offset);
}

}  // namespace gpt::utf8
