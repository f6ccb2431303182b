#include "text_change.h"

#include <utf8proc.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "gpt/core/utf8.h"
#include "gpt/tokenizer/text_error.h"
#include "unicode_class.h"
#include "unicode_sets.h"

namespace gpt::tokenizer {
namespace {

constexpr size_t kLargestText = size_t{1} << 26;  // that replacing may make of a text

struct FormOptions {
  utf8proc_option_t options;
  unsigned char first_affected;  // lead bytes below are of characters that stay as they are and have nothing to join
};

FormOptions options_of(UnicodeForm form) {
  const auto options = [](int flags) { return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | flags); };
  switch (form) {
    case UnicodeForm::nfc: return {options(UTF8PROC_COMPOSE), 0xCC};    // from U+0300 on
    case UnicodeForm::nfd: return {options(UTF8PROC_DECOMPOSE), 0xC3};  // from U+00C0 on
    case UnicodeForm::nfkc: return {options(UTF8PROC_COMPOSE | UTF8PROC_COMPAT), 0xC2};
    case UnicodeForm::nfkd: return {options(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT), 0xC2};
  }
  throw std::logic_error("no such form of Unicode");
}

int combining_class(char32_t value) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(value))->combining_class;
}

// utf8proc reorders marks by exchanging neighbours, which takes the square of their number: long runs are sorted before.
std::string with_sorted_marks(std::string_view text) {
  std::string sorted;
  std::vector<std::pair<int, char32_t>> marks;
  const auto flush = [&] {
    std::stable_sort(marks.begin(), marks.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [order, value] : marks) utf8::append(sorted, value);
    marks.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const utf8::Scan scan = utf8::scan(text, at);
    const int order = combining_class(scan.value);
    if (order == 0) flush();
    marks.emplace_back(order, scan.value);
    if (order == 0) flush();
    at += scan.bytes;
  }
  flush();
  return sorted;
}

// Appends the form of `text`, all of whose characters Unicode 9 knows or does not change.
void append_form(std::string_view text, utf8proc_option_t options, std::string& result) {
  constexpr size_t kLong = 256;
  if (text.empty()) return;
  const std::string sorted = text.size() > kLong ? with_sorted_marks(text) : std::string();
  if (!sorted.empty()) text = sorted;
  static thread_local std::vector<utf8proc_int32_t> buffer;
  const auto decompose = [&] {
    return utf8proc_decompose(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                              static_cast<utf8proc_ssize_t>(text.size()), buffer.data(),
                              static_cast<utf8proc_ssize_t>(buffer.size()), options);
  };
  utf8proc_ssize_t length = decompose();
  if (length + 1 > std::ssize(buffer)) {
    buffer.resize(static_cast<size_t>(length) + 1);
    length = decompose();
  }
  if (length >= 0) length = utf8proc_reencode(buffer.data(), length, options);
  if (length < 0) throw std::logic_error(utf8proc_errmsg(length));
  result.append(reinterpret_cast<const char*>(buffer.data()), static_cast<size_t>(length));
}

// The same of any text: what came after Unicode 9 stays, and nothing is exchanged or joined across it.
void append_known_form(std::string_view text, utf8proc_option_t options, std::string& result) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const utf8::Scan scan = utf8::scan(text, at);
    if (unicode::contains(unicode::kUnnormalized, scan.value)) {
      append_form(text.substr(begin, at - begin), options, result);
      result.append(text, at, scan.bytes);
      begin = at + scan.bytes;
    }
    at += scan.bytes;
  }
  append_form(text.substr(begin), options, result);
}

bool is_space(char32_t value) { return unicode::character_class(value) == unicode::CharacterClass::space; }

size_t spaces_at_start(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const utf8::Scan scan = utf8::scan(text, at);
    if (!is_space(scan.value)) break;
    at += scan.bytes;
  }
  return at;
}

size_t without_spaces_at_end(std::string_view text) {
  while (!text.empty()) {
    const size_t last = utf8::last_character(text);
    if (!is_space(utf8::scan(text, last).value)) break;
    text = text.substr(0, last);
  }
  return text.size();
}

}  // namespace

TextChange to_unicode_form(UnicodeForm form) {
  return [settings = options_of(form)](std::string& text) {
    const auto is_affected = [&](char c) { return static_cast<unsigned char>(c) >= settings.first_affected; };
    // Where a character that stays as it is begins, the text before it is done.
    const auto begins_anew = [&](char c) { return utf8::begins_character(c) && !is_affected(c); };
    std::string result;
    size_t done = 0;
    for (auto next = std::find_if(text.begin(), text.end(), is_affected); next != text.end();) {
      const auto affected = static_cast<size_t>(next - text.begin());
      const size_t begin = std::max(done, utf8::last_character(std::string_view(text).substr(0, affected)));
      next = std::find_if(next, text.end(), begins_anew);
      const auto end = static_cast<size_t>(next - text.begin());
      result.append(text, done, begin - done);
      append_known_form(std::string_view(text).substr(begin, end - begin), settings.options, result);
      done = end;
      next = std::find_if(next, text.end(), is_affected);
    }
    if (done == 0) return;
    text = result.append(text, done);
  };
}

TextChange prepend(std::string prefix) {
  return [prefix = std::move(prefix)](std::string& text) {
    if (!text.empty()) text.insert(0, prefix);
  };
}

TextChange replace(std::shared_ptr<const Matcher> matcher, std::string content) {
  return [matcher = std::move(matcher), content = std::move(content)](std::string& text) {
    if (!matcher->find(text, 0)) return;
    std::string result;
    visit_matches(*matcher, text, [&](size_t begin, size_t end, bool is_match) {
      if (is_match) {
        result += content;
        if (result.size() > kLargestText)
          throw TextError(begin, "the tokenizer's normalizer makes it too long", "use another tokenizer");
      } else {
        result.append(text, begin, end - begin);
      }
    });
    text = std::move(result);
  };
}

TextChange strip(bool left, bool right) {
  return [left, right](std::string& text) {
    if (right) text.resize(without_spaces_at_end(text));
    if (left) text.erase(0, spaces_at_start(text));
  };
}

}  // namespace gpt::tokenizer
