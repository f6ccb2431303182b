#include "gpt/core/printable.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>

#include "gpt/core/format.h"
#include "gpt/core/output.h"
#include "gpt/core/utf8.h"

namespace gpt {
namespace {

std::string spelled(uint32_t code) {
  return code < 0x100 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{:04x}", code);
}

template <class IsSpelled>
std::string with_spelled(std::string_view text, const IsSpelled& is_spelled) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const utf8::Scan next = utf8::scan(text, i);
    if (next.kind != utf8::Scan::whole) {
      result += spelled(static_cast<uint8_t>(text[i++]));
      continue;
    }
    if (is_spelled(next.value)) {
      result += spelled(static_cast<uint32_t>(next.value));
    } else {
      result += text.substr(i, next.bytes);
    }
    i += next.bytes;
  }
  return result;
}

// The first place from `position` on where a character begins.
size_t next_character(std::string_view text, size_t position) {
  while (position < text.size() && !utf8::begins_character(text[position])) ++position;
  return position;
}

}  // namespace

bool commands_terminal(char32_t code) {
  const bool c0 = code < 0x20 && code != '\n' && code != '\t';
  const bool delete_or_c1 = code >= 0x7F && code <= 0x9F;
  const bool bidirectional = code == 0x061C || code == 0x200E || code == 0x200F || (code >= 0x202A && code <= 0x202E) ||
                             (code >= 0x2066 && code <= 0x2069);
  return c0 || delete_or_c1 || bidirectional;
}

std::string printable(std::string_view text) { return with_spelled(text, commands_terminal); }

std::string printable_line(std::string_view text) {
  return with_spelled(text, [](char32_t code) { return code < 0x20 || commands_terminal(code); });
}

std::string shortened(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  const size_t begin = next_character(text, most / 2), end = next_character(text, text.size() - (most - most / 2));
  return fmt::format("{} ... ({} bytes left out) ... {}", text.substr(0, begin),
                     with_commas(static_cast<int64_t>(end - begin)), text.substr(end));
}

std::string shell_quoted(const std::string& text) {
  if (text.find_first_of("\"\\$`!") == std::string::npos) return '"' + text + '"';
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

std::string shell_word(const std::string& text) {
  const bool is_plain = !text.empty() && text.find_first_of(" \t\n\"'\\$`!*?;&|<>()#~[]{}") == std::string::npos;
  return is_plain ? text : shell_quoted(text);
}

void print(std::string_view text) {
  const std::string shown = isatty(STDOUT_FILENO) ? printable(text) : std::string(text);
  output::write(shown);
}

}  // namespace gpt
