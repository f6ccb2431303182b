#include "gpt/evaluate/python_text.h"

#include <locale.h>
#include <wctype.h>

#include <algorithm>

#include "gpt/core/error.h"
#include "gpt/core/utf8.h"

namespace gpt::evaluate {
namespace {

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

// The C library's table of Unicode, in which letters are small or capital whatever the user's language.
locale_t unicode_locale() {
  static locale_t const locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (locale) return locale;
  throw Error(ExitCode::data, "this system has no locale C.UTF-8, without which letters beyond ASCII have no capitals");
}

char32_t in_case(char32_t c, bool is_capital) {
  if (c < 0x80) return static_cast<char32_t>(is_capital ? toupper(static_cast<int>(c)) : tolower(static_cast<int>(c)));
  const auto wide = static_cast<wint_t>(c);
  return static_cast<char32_t>(is_capital ? towupper_l(wide, unicode_locale()) : towlower_l(wide, unicode_locale()));
}

}  // namespace

size_t trailing_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t last = utf8::last_character(text.substr(0, end));
    if (!is_space(utf8::scan(text, last).value)) break;
    end = last;
  }
  return text.size() - end;
}

std::string strip(std::string_view text) {
  text.remove_suffix(trailing_space(text));
  while (!text.empty()) {
    const utf8::Scan first = utf8::scan(text, 0);
    if (first.kind != utf8::Scan::whole || !is_space(first.value)) break;
    text.remove_prefix(first.bytes);
  }
  return std::string(text);
}

std::string capitalize(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const utf8::Scan next = utf8::scan(text, at);
    utf8::append(result, in_case(next.value, at == 0));
    at += next.bytes;
  }
  return result;
}

int64_t characters(std::string_view text) { return std::count_if(text.begin(), text.end(), utf8::begins_character); }

void WordCount::add(std::string_view piece) {
  for (size_t at = 0; at < piece.size();) {
    const utf8::Scan next = utf8::scan(piece, at);
    const bool is_space_here = next.kind == utf8::Scan::whole && is_space(next.value);
    runs_ += is_space_here && !is_in_space_;
    is_in_space_ = is_space_here;
    at += next.bytes;
  }
}

}  // namespace gpt::evaluate
