#include "oniguruma.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "character_set.h"
#include "gpt/core/utf8.h"

namespace gpt::tokenizer {
namespace {

constexpr size_t kLongestPattern = 10'000;
constexpr int kMostNested = 50;

bool is_ascii_alphanumeric(char32_t c) { return c < 0x80 && std::isalnum(static_cast<int>(c)); }

std::string literal(char32_t value) {
  if (is_ascii_alphanumeric(value) || value == ' ') return std::string(1, static_cast<char>(value));
  return fmt::format("\\x{{{:X}}}", static_cast<uint32_t>(value));
}

class OnigurumaReader {
 public:
  explicit OnigurumaReader(std::string_view pattern) : in_(pattern) {}

  std::string read() {
    if (in_.size() > kLongestPattern)
      throw PatternError(fmt::format("it has {} bytes; at most {} are read", in_.size(), kLongestPattern));
    alternatives();
    if (at_ < in_.size()) throw PatternError("it has a ) without a (");
    return std::move(out_);
  }

 private:
  bool done() const { return at_ == in_.size(); }
  bool take(std::string_view text) {
    if (!in_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t next_character() {
    if (done()) throw PatternError("it ends too early");
    const utf8::Scan scan = utf8::scan(in_, at_);
    if (scan.kind != utf8::Scan::whole) throw PatternError("it is not UTF-8");
    at_ += scan.bytes;
    return scan.value;
  }

  // Up to the ) that ends the group, which is left, or to the end.
  void alternatives() {
    if (++nested_ > kMostNested) throw PatternError(fmt::format("its groups nest more than {} deep", kMostNested));
    const bool outer_case = ignores_case_;
    int open = 0;  // (?i) holds up to the end of the group, behind a | too
    for (previous_letter_ = 0; !done() && in_[at_] != ')';) {
      if (take("|")) {
        out_ += '|';
        previous_letter_ = 0;
      } else {
        open += repeated();
      }
    }
    out_.append(static_cast<size_t>(open), ')');
    ignores_case_ = outer_case;
    --nested_;
  }

  // One atom with its quantifiers. 1 if it was an option for what follows, which opens a group.
  int repeated() {
    const size_t start = out_.size();
    if (take("(")) {
      if (group()) return 1;
    } else {
      atom();
    }
    for (bool again = false; quantifier(start, again); again = true) previous_letter_ = 0;
    return 0;
  }

  // Behind the (. True for an option without a group of its own.
  bool group() {
    previous_letter_ = 0;
    if (take("?#")) {
      const size_t end = in_.find(')', at_);
      if (end == std::string_view::npos) throw PatternError("it has a comment without an end");
      at_ = end + 1;
      return false;
    }
    std::string opening = "(?:";
    const bool outer_case = ignores_case_;
    for (const std::string_view plain : {"?:", "?=", "?!", "?>", "?<=", "?<!"}) {
      if (take(plain)) {
        opening = "(" + std::string(plain);
        return inside(opening, outer_case);
      }
    }
    if (take("?<")) {  // the name of a group that nothing refers to
      const size_t end = in_.find('>', at_);
      if (end == std::string_view::npos) throw PatternError("it has a group without a name");
      at_ = end + 1;
    } else if (take("?")) {
      opening = options();
      if (take(")")) {
        out_ += opening;
        return true;
      }
      if (!take(":")) throw PatternError("it has a kind of group that is not supported");
    }
    return inside(opening, outer_case);
  }

  bool inside(const std::string& opening, bool outer_case) {
    out_ += opening;
    alternatives();
    if (!take(")")) throw PatternError("it has a ( without a )");
    out_ += ')';
    ignores_case_ = outer_case;
    previous_letter_ = 0;
    return false;
  }

  // i and m of (?i-m: , as the start of a group in PCRE2, which says s for Oniguruma's m.
  std::string options() {
    std::string opening = "(?";
    bool on = true;
    for (;; ++at_) {
      if (done()) throw PatternError("it has a ( without a )");
      const char c = in_[at_];
      if (c == ')' || c == ':') return opening + ":";
      if (c == '-' && on) {
        on = false;
        opening += '-';
      } else if (c == 'i') {
        ignores_case_ = on;
        opening += 'i';
      } else if (c == 'm') {
        opening += 's';
      } else {
        throw PatternError(fmt::format("it has the option {}, which is not supported", shown_character(c)));
      }
    }
  }

  static std::string shown_character(char c) {
    return c > ' ' && c <= '~' ? std::string("'") + c + "'" : fmt::format("0x{:02X}", static_cast<unsigned char>(c));
  }

  // `again`: what is repeated is a repetition.
  bool quantifier(size_t start, bool again) {
    std::string repeat;
    for (const std::string_view sign : {"?", "*", "+"}) {
      if (repeat.empty() && take(sign)) repeat = sign;
    }
    const bool is_interval = repeat.empty();
    if (is_interval) {
      const size_t before = at_;
      const std::optional<std::string> interval = read_interval();
      if (!interval) return at_ = before, false;
      repeat = *interval;
    }
    if (start == out_.size()) throw PatternError("it repeats nothing");
    if (again) {
      out_.insert(start, "(?:");
      out_ += ')';
    }
    out_ += repeat;
    const bool is_exact = is_interval && repeat.find(',') == std::string::npos;  // {n}? is one or none
    if (!is_exact && take("?")) {
      out_ += '?';
    } else if (!is_interval && take("+")) {
      out_ += '+';
    }
    return true;
  }

  // {n}, {n,}, {,m} or {n,m}; nothing for a brace that is a character.
  std::optional<std::string> read_interval() {
    if (!take("{")) return std::nullopt;
    const std::optional<int> least = number();
    const bool has_comma = take(",");
    const std::optional<int> most = has_comma ? number() : least;
    if (!take("}") || (!least && !most)) return std::nullopt;
    if (least && most && *least > *most) throw PatternError("it has an interval whose end is before its beginning");
    if (!has_comma) return fmt::format("{{{}}}", *least);
    return fmt::format("{{{},{}}}", least.value_or(0), most ? std::to_string(*most) : "");
  }

  std::optional<int> number() {
    constexpr int kMostTimes = 65535;  // PCRE2's
    std::optional<int> value;
    for (; !done() && std::isdigit(static_cast<unsigned char>(in_[at_])); ++at_) {
      value = value.value_or(0) * 10 + (in_[at_] - '0');
      if (*value > kMostTimes) throw PatternError(fmt::format("it repeats more than {} times", kMostTimes));
    }
    return value;
  }

  void atom() {
    if (take(".")) return append_other(".");
    if (take("^")) return append_other("^");
    if (take("$")) return append_other("$");
    if (take("[")) return append_other(character_class());
    if (take("\\")) return escape();
    if (const char c = in_[at_]; c == '*' || c == '+' || c == '?') throw PatternError("it repeats nothing");
    const size_t before = at_;
    if (read_interval()) throw PatternError("it repeats nothing");
    at_ = before;
    append_literal(next_character());
  }

  void append_other(const std::string& text) {
    out_ += text;
    previous_letter_ = 0;
  }

  // Oniguruma lets (?i:ss) match one ß, and so on; PCRE2 does not.
  void append_literal(char32_t value) {
    if (ignores_case_) {
      const auto letter = value < 0x80 ? static_cast<char32_t>(std::tolower(static_cast<int>(value))) : value;
      constexpr std::array<std::u32string_view, 5> kFolded = {U"ss", U"ff", U"fi", U"fl", U"st"};
      const char32_t pair[] = {previous_letter_, letter};
      const bool is_folded = std::find(kFolded.begin(), kFolded.end(), std::u32string_view(pair, 2)) != kFolded.end();
      if (value >= 0x80 || is_folded)
        throw PatternError("it ignores the case of letters that become several in the other case");
      previous_letter_ = letter;
    }
    out_ += literal(value);
  }

  void escape() {
    const size_t before = at_;
    const char32_t c = next_character();
    switch (c) {
      case 'b':
        return append_other(fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", CharacterSet::word().expression()));
      case 'B':
        return append_other(fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", CharacterSet::word().expression()));
      case 'A': return append_other("\\A");
      case 'z': return append_other("\\z");
      case 'Z': return append_other("\\Z");
      default: break;
    }
    at_ = before;
    if (const std::optional<CharacterSet> set = escaped_set()) return append_other(set->expression());
    append_literal(escaped_character());
  }

  // \d, \p{L} and their like; nothing for the escape of a single character.
  std::optional<CharacterSet> escaped_set() {
    const size_t before = at_;
    const char32_t c = next_character();
    switch (c) {
      case 'd': return CharacterSet::property("nd");
      case 'D': return CharacterSet::property("nd")->complement();
      case 's': return CharacterSet::space();
      case 'S': return CharacterSet::space().complement();
      case 'w': return CharacterSet::word();
      case 'W': return CharacterSet::word().complement();
      case 'h': return CharacterSet::hexadecimal();
      case 'H': return CharacterSet::hexadecimal().complement();
      case 'p':
      case 'P': return property(c == 'P');
      default: at_ = before; return std::nullopt;
    }
  }

  CharacterSet property(bool negated) {
    const size_t end = in_.find('}', at_);
    if (!take("{") || end == std::string_view::npos) throw PatternError("it has \\p without a name in braces");
    if (take("^")) negated = !negated;
    std::string name;
    for (; at_ < end; ++at_) {
      const char c = in_[at_];
      if (c != ' ' && c != '_' && c != '-') name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    ++at_;
    if (ignores_case_ && (name == "lu" || name == "ll" || name == "lt"))
      throw PatternError("it ignores the case of a property of case");
    const std::optional<CharacterSet> set = CharacterSet::property(name);
    if (!set) throw PatternError(fmt::format("it has the property {}, which is not supported", name.substr(0, 40)));
    return negated ? set->complement() : *set;
  }

  char32_t escaped_character() {
    const char32_t c = next_character();
    switch (c) {
      case 't': return '\t';
      case 'n': return '\n';
      case 'v': return '\v';
      case 'f': return '\f';
      case 'r': return '\r';
      case 'a': return '\a';
      case 'e': return 0x1B;
      case 'u': return hexadecimal(4, 4);
      case 'x': {
        if (!take("{")) {
          const char32_t value = hexadecimal(1, 2);
          if (value >= 0x80) throw PatternError("it has a byte of a character");
          return value;
        }
        const char32_t value = hexadecimal(1, 8);
        if (!take("}")) throw PatternError("it has \\x{ without a }");
        return value;
      }
      default: break;
    }
    if (!is_ascii_alphanumeric(c)) return c;
    throw PatternError(std::isdigit(static_cast<int>(c))
                           ? "it has a back reference or an octal number"
                           : fmt::format("it has \\{}, which is not supported", static_cast<char>(c)));
  }

  char32_t hexadecimal(int least, int most) {
    uint64_t value = 0;
    int digits = 0;
    for (; digits < most && !done() && std::isxdigit(static_cast<unsigned char>(in_[at_])); ++digits, ++at_) {
      const char c = in_[at_];
      value = value * 16 + static_cast<uint64_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    const bool is_surrogate = value >= 0xD800 && value < 0xE000;
    if (digits < least || value >= utf8::kCodePoints || is_surrogate)
      throw PatternError("it has a number that is no character");
    return static_cast<char32_t>(value);
  }

  // Behind the [, up to and with its ].
  std::string character_class() { return class_set().expression(); }

  CharacterSet class_set() {
    if (++nested_ > kMostNested) throw PatternError(fmt::format("its classes nest more than {} deep", kMostNested));
    const bool negated = take("^");
    if (take("]")) throw PatternError("it has a class that begins with ]");
    std::optional<CharacterSet> whole;
    CharacterSet part;
    const auto intersect = [&] { whole = whole ? whole->intersection(part) : part; };
    while (!take("]")) {
      if (take("&&")) {
        intersect();
        part = {};
      } else {
        class_item(part);
      }
    }
    intersect();
    --nested_;
    return negated ? whole->complement() : *whole;
  }

  void class_item(CharacterSet& part) {
    if (in_.substr(at_).starts_with("[:")) throw PatternError("it has a POSIX bracket");
    if (take("[")) return part.add(class_set());
    if (take("\\")) {
      if (const std::optional<CharacterSet> set = escaped_set()) {
        if (in_.substr(at_).starts_with("-") && !in_.substr(at_).starts_with("-]"))
          throw PatternError("it has a range that begins with a class");
        return part.add(*set);
      }
      return range_from(take("b") ? U'\b' : escaped_character(), part);
    }
    range_from(next_character(), part);
  }

  void range_from(char32_t first, CharacterSet& part) {
    const std::string_view rest = in_.substr(at_);
    if (!rest.starts_with("-") || rest.starts_with("-]") || rest.starts_with("-&&")) return part.add(first, first);
    ++at_;
    if (take("[")) throw PatternError("it has a range that ends with a class");
    char32_t last = 0;
    if (take("\\")) {
      if (escaped_set()) throw PatternError("it has a range that ends with a class");
      last = take("b") ? U'\b' : escaped_character();
    } else {
      last = next_character();
    }
    if (last < first) throw PatternError("it has a range whose end is before its beginning");
    part.add(first, last);
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  int nested_ = 0;
  bool ignores_case_ = false;
  char32_t previous_letter_ = 0;  // the literal before, where case is ignored
};

}  // namespace

std::string pcre2_pattern(std::string_view pattern) { return OnigurumaReader(pattern).read(); }

}  // namespace gpt::tokenizer
