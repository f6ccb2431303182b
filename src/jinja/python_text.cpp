#include "python_text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>

#include "gpt/core/utf8.h"

namespace gpt::jinja {
namespace {

utf8proc_category_t category(char32_t character) { return utf8proc_category(static_cast<utf8proc_int32_t>(character)); }

char32_t in_upper(char32_t c) { return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))); }
char32_t in_lower(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))); }

void append_upper(std::string& text, char32_t character) {
  constexpr char32_t kSharpS = 0xDF;
  character == kSharpS ? (void)(text += "SS") : utf8::append(text, in_upper(character));
}

template <class Visitor>
void for_each_character(std::string_view text, const Visitor& visit) {
  for (size_t i = 0; i < text.size();) {
    const utf8::Scan next = utf8::scan(text, i);
    visit(next.value);
    i += next.bytes;
  }
}

std::vector<std::string_view> split_at_white(std::string_view text, int64_t most, bool from_right) {
  std::vector<std::string_view> words;
  for (std::string_view rest = strip_begin(text); !rest.empty(); rest = strip_begin(rest)) {
    size_t end = 0;
    while (end < rest.size() && !is_white(utf8::scan(rest, end).value)) end += utf8::scan(rest, end).bytes;
    words.push_back(rest.substr(0, end));
    rest.remove_prefix(end);
  }
  if (most < 0 || std::ssize(words) <= most) return words;
  // What is not split is one part, with the white space inside and on its far side.
  if (from_right) {
    const std::string_view last = words[words.size() - static_cast<size_t>(most) - 1];
    words.erase(words.begin(), words.end() - most);
    words.insert(words.begin(), {text.data(), static_cast<size_t>(last.data() + last.size() - text.data())});
  } else {
    const char* const rest = words[static_cast<size_t>(most)].data();
    words.resize(static_cast<size_t>(most));
    words.push_back({rest, static_cast<size_t>(text.data() + text.size() - rest)});
  }
  return words;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, int64_t most,
                                       bool from_right) {
  std::vector<std::string_view> parts;
  while (most < 0 || std::ssize(parts) < most) {
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    const std::string_view after = text.substr(at + separator.size());
    parts.push_back(from_right ? after : text.substr(0, at));
    text = from_right ? text.substr(0, at) : after;
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

// str.isspace().
bool is_white(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view strip_begin(std::string_view text) { return strip(text, nullptr, Sides::left); }
std::string_view strip_end(std::string_view text) { return strip(text, nullptr, Sides::right); }

std::string_view strip(std::string_view text, const std::string* chosen, Sides sides) {
  const auto is_taken = [&](size_t at) {
    const utf8::Scan next = utf8::scan(text, at);
    return chosen ? chosen->find(text.substr(at, next.bytes)) != std::string::npos : is_white(next.value);
  };
  while (sides != Sides::right && !text.empty() && is_taken(0)) text.remove_prefix(utf8::scan(text, 0).bytes);
  while (sides != Sides::left && !text.empty() && is_taken(utf8::last_character(text)))
    text.remove_suffix(text.size() - utf8::last_character(text));
  return text;
}

int64_t length(std::string_view text) { return std::count_if(text.begin(), text.end(), utf8::begins_character); }

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  for (size_t i = 0; i < text.size(); i += all.back().size()) all.push_back(text.substr(i, utf8::scan(text, i).bytes));
  return all;
}

std::vector<std::string_view> split(std::string_view text, const std::string* separator, int64_t most,
                                    bool from_right) {
  return separator ? split_at(text, *separator, most, from_right) : split_at_white(text, most, from_right);
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const utf8::Scan next = utf8::scan(text, i);
    const char32_t c = next.value;
    size_t end = i + next.bytes;
    const bool ends = (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (ends) {
      lines.push_back(text.substr(begin, i - begin));
      if (c == '\r' && text.substr(end).starts_with('\n')) ++end;
      begin = end;
    }
    i = end;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string replace(std::string_view text, std::string_view old, std::string_view by, int64_t most) {
  std::string result;
  size_t at = 0;
  for (int64_t done = 0; most < 0 || done < most; ++done) {
    const size_t found = text.find(old, at);
    if (found == std::string_view::npos) break;
    result.append(text.substr(at, found - at)).append(by);
    at = found + old.size();
    if (!old.empty()) continue;
    if (at == text.size()) return result;  // an empty one is before each character and at the end
    const size_t bytes = utf8::scan(text, at).bytes;
    result.append(text.substr(at, bytes));
    at += bytes;
  }
  return result.append(text.substr(at));
}

std::string upper(std::string_view text) {
  std::string result;
  for_each_character(text, [&](char32_t c) { append_upper(result, c); });
  return result;
}

std::string lower(std::string_view text) {
  std::string result;
  for_each_character(text, [&](char32_t c) { utf8::append(result, in_lower(c)); });
  return result;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return "";
  const size_t first = utf8::scan(text, 0).bytes;
  return upper(text.substr(0, first)) + lower(text.substr(first));
}

bool is_letter(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

std::string title(std::string_view text) {
  std::string result;
  bool in_word = false;
  for_each_character(text, [&](char32_t c) {
    in_word ? utf8::append(result, in_lower(c)) : append_upper(result, c);
    in_word = is_letter(c);
  });
  return result;
}

std::string repr(std::string_view text) {
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string result(1, quote);
  for_each_character(text, [&](char32_t c) {
    const utf8proc_category_t kind = category(c);
    const bool is_shown = c == ' ' || (kind != UTF8PROC_CATEGORY_CN && kind < UTF8PROC_CATEGORY_ZS);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      (result += '\\') += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      result += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_shown) {
      utf8::append(result, c);
    } else {
      const auto code = static_cast<uint32_t>(c);
      result += code < 0x100     ? fmt::format("\\x{:02x}", code)
                : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                                 : fmt::format("\\U{:08x}", code);
    }
  });
  return result + quote;
}

std::string written(double number) {
  std::string text = fmt::format("{}", number);  // the shortest digits that give the number back, as Python's
  return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
}

}  // namespace gpt::jinja
