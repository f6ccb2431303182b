#include "lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "error_at.h"
#include "gpt/core/utf8.h"
#include "python_text.h"

namespace gpt::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || (c & 0x80); }

// With \n at the end of each line, and without that of the last one.
std::string with_plain_lines(std::string_view source) {
  std::string lines;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    lines += source[i] == '\r' ? '\n' : source[i];
  }
  if (lines.ends_with('\n')) lines.pop_back();
  return lines;
}

// What stands between quotes, as Python reads it.
class StringReader {
 public:
  StringReader(std::string_view body, int line) : body_(body), line_(line) {}

  std::string read() {
    while (at_ < body_.size()) {
      if (body_[at_] != '\\') {
        text_ += body_[at_++];
      } else {
        ++at_;  // a backslash is never the last: it would have escaped the quote
        escape(body_[at_++]);
      }
    }
    return std::move(text_);
  }

 private:
  void escape(char c) {
    constexpr std::string_view kLetters = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t letter = kLetters.find(c); letter != std::string_view::npos) {
      text_ += kMeanings[letter];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      code(c == 'x' ? 2 : c == 'u' ? 4 : 8, 16);
    } else if (c >= '0' && c <= '7') {
      --at_;
      size_t digits = 1;
      while (digits < 3 && at_ + digits < body_.size() && body_[at_ + digits] >= '0' && body_[at_ + digits] <= '7')
        ++digits;
      code(digits, 8);
    } else if (c == 'N') {
      fail_at(line_, "characters by their names, \\N{...}, are not supported");
    } else if (c != '\n') {
      (text_ += '\\') += c;
    }
  }

  void code(size_t digits, int base) {
    uint32_t value = 0;
    const char* const begin = body_.data() + at_;
    const bool fits = at_ + digits <= body_.size();
    if (!fits || std::from_chars(begin, begin + digits, value, base).ptr != begin + digits ||
        value >= utf8::kCodePoints || (value >= 0xD800 && value < 0xE000))
      fail_at(line_, "a backslash in a string is followed by what is no character");
    utf8::append(text_, value);
    at_ += digits;
  }

  std::string_view body_;
  int line_;
  size_t at_ = 0;
  std::string text_;
};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> read() {
    while (at_ < source_.size()) {
      const size_t tag = find_tag();
      read_text(tag);
      if (tag == source_.size()) break;
      source_[tag + 1] == '#' ? skip_comment() : read_tag(source_[tag + 1] == '{');
    }
    add(Token::end, "");
    return std::move(tokens_);
  }

 private:
  size_t find_tag() const {
    for (size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] == '{' && (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#')) return i;
    }
    return source_.size();
  }

  void add(Token::Kind kind, std::string value) { tokens_.push_back({kind, std::move(value), line_}); }

  bool has(std::string_view text) const { return source_.substr(at_).starts_with(text); }

  void pass(size_t end) {
    line_ += static_cast<int>(
        std::count(source_.begin() + static_cast<ptrdiff_t>(at_), source_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    if (end > at_) begins_line_ = source_[end - 1] == '\n';
    at_ = end;
  }

  // The text up to a tag, whose sign takes white space away, and so does lstrip_blocks that before a tag which begins its line.
  void read_text(size_t tag) {
    std::string_view text = source_.substr(at_, tag - at_);
    const bool is_tag = tag < source_.size();
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    if (is_tag && sign == '-') {
      text = strip_end(text);
    } else if (is_tag && sign != '+' && source_[tag + 1] != '{') {
      const size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
      if ((line > 0 || begins_line_) && strip_end(text.substr(line)).empty()) text = text.substr(0, line);
    }
    if (!text.empty()) add(Token::text, std::string(text));
    pass(tag);
  }

  void begin_tag() {
    pass(at_ + 2);
    if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) pass(at_ + 1);
  }

  // Behind the end of a tag: all white space, or with trim_blocks a line end.
  void end_tag(char sign, std::string_view closing) {
    pass(at_ + closing.size() + (sign == ' ' ? 0 : 1));
    if (sign == '-') {
      pass(source_.size() - strip_begin(source_.substr(at_)).size());
    } else if (sign == ' ' && closing != "}}" && has("\n")) {
      pass(at_ + 1);
    }
  }

  void skip_comment() {
    begin_tag();
    const size_t end = source_.find("#}", at_);
    if (end == std::string_view::npos) fail_at(line_, "a comment {# does not end");
    const char before = end > at_ ? source_[end - 1] : ' ', sign = before == '-' || before == '+' ? before : ' ';
    pass(sign == ' ' ? end : end - 1);
    end_tag(sign, "#}");
  }

  // The sign before the end of the tag, where it ends here: '-', '+' or a space for none.
  std::optional<char> ends_here(std::string_view closing) const {
    if (!open_.empty()) return std::nullopt;
    if (has(closing)) return ' ';
    const char sign = source_[at_];
    if ((sign == '-' || (sign == '+' && closing != "}}")) && source_.substr(at_ + 1).starts_with(closing)) return sign;
    return std::nullopt;
  }

  void read_tag(bool is_output) {
    const int first_line = line_;
    const std::string_view closing = is_output ? "}}" : "%}";
    add(is_output ? Token::begin_output : Token::begin_block, "");
    begin_tag();
    while (at_ < source_.size()) {
      if (const std::optional<char> sign = ends_here(closing)) {
        add(is_output ? Token::end_output : Token::end_block, std::string(closing));
        return end_tag(*sign, closing);
      }
      read_token();
    }
    fail_at(first_line,
            fmt::format("a tag that begins here does not end: {} is missing", open_.empty() ? closing : open_));
  }

  void read_token() {
    const char c = source_[at_];
    const size_t rest = strip_begin(source_.substr(at_)).size(), white = source_.size() - at_ - rest;
    if (white > 0) return pass(at_ + white);
    if (is_digit(c)) return read_number();
    if (begins_name(c)) {
      size_t end = at_;
      while (end < source_.size() && (begins_name(source_[end]) || is_digit(source_[end]))) ++end;
      add(Token::name, std::string(source_.substr(at_, end - at_)));
      return pass(end);
    }
    if (c == '\'' || c == '"') return read_string(c);
    read_sign();
  }

  void read_string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_at(line_, "a string does not end");
    add(Token::string, StringReader(source_.substr(at_ + 1, end - at_ - 1), line_).read());
    pass(end + 1);
  }

  void read_number() {
    size_t end = at_;
    const auto digits = [&] {
      while (end < source_.size() && (is_digit(source_[end]) || source_[end] == '_')) ++end;
    };
    digits();
    const auto digit_at = [&](size_t i) { return i < source_.size() && is_digit(source_[i]); };
    bool is_real = false;
    if (end < source_.size() && source_[end] == '.' && digit_at(end + 1)) is_real = true, ++end, digits();
    if (end < source_.size() && (source_[end] | 0x20) == 'e') {
      const size_t exponent =
          end + (end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 2 : 1);
      if (digit_at(exponent)) is_real = true, end = exponent, digits();
    }
    std::string number(source_.substr(at_, end - at_));
    std::erase(number, '_');
    const bool has_zeros = !is_real && number.starts_with('0') && number.find_first_not_of('0') != std::string::npos;
    if (has_zeros || (end < source_.size() && begins_name(source_[end])))
      fail_at(line_, fmt::format("{}... is no number", number));
    add(is_real ? Token::real : Token::integer, std::move(number));
    pass(end);
  }

  void read_sign() {
    constexpr std::string_view kSigns[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                           "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
    const auto sign = std::find_if(std::begin(kSigns), std::end(kSigns), [&](std::string_view s) { return has(s); });
    if (sign == std::end(kSigns))
      fail_at(line_, fmt::format("unexpected character '{}'", source_[at_] > 31 ? source_[at_] : '?'));
    const char c = (*sign)[0];
    if (c == '(' || c == '[' || c == '{') open_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (!open_.ends_with(c)) fail_at(line_, fmt::format("unexpected '{}'", c));
      open_.pop_back();
    }
    add(Token::sign, std::string(*sign));
    pass(at_ + sign->size());
  }

  const std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool begins_line_ = true;
  std::string open_;  // the brackets that will close what is open
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> read_tokens(std::string_view source) {
  if (!utf8::is_valid(source)) fail_at(1, "the template is not UTF-8");
  const std::string lines = with_plain_lines(source);
  return Lexer(lines).read();
}

}  // namespace gpt::jinja
