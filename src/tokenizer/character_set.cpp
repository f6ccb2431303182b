#include "character_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <utility>

#include "unicode_sets.h"

namespace gpt::tokenizer {
namespace {

std::string range_item(char32_t first, char32_t last) {
  const auto number = [](char32_t value) { return fmt::format("\\x{{{:X}}}", static_cast<uint32_t>(value)); };
  return first == last ? number(first) : number(first) + "-" + number(last);
}

// PCRE2's characters of a category such as "L" or "Lu", and those that its tables may lack.
std::string category_items(std::string_view category) {
  std::string items = fmt::format("\\p{{{}}}", category);
  for (const unicode::CategoryRange& range : unicode::kAddedSinceUnicode14) {
    if (range.category.starts_with(category)) items += range_item(range.first, range.last);
  }
  return items;
}

std::optional<std::string> category_named(std::string_view name) {
  constexpr std::string_view kShort[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N", "Nd",
                                         "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm",
                                         "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "Cc", "Cf", "Co"};
  constexpr std::pair<std::string_view, std::string_view> kLong[] = {{"letter", "L"},
                                                                     {"uppercaseletter", "Lu"},
                                                                     {"lowercaseletter", "Ll"},
                                                                     {"titlecaseletter", "Lt"},
                                                                     {"modifierletter", "Lm"},
                                                                     {"otherletter", "Lo"},
                                                                     {"mark", "M"},
                                                                     {"nonspacingmark", "Mn"},
                                                                     {"number", "N"},
                                                                     {"decimalnumber", "Nd"},
                                                                     {"letternumber", "Nl"},
                                                                     {"othernumber", "No"},
                                                                     {"punctuation", "P"},
                                                                     {"symbol", "S"},
                                                                     {"separator", "Z"},
                                                                     {"spaceseparator", "Zs"},
                                                                     {"digit", "Nd"},
                                                                     {"control", "Cc"},
                                                                     {"format", "Cf"}};
  for (const std::string_view category : kShort) {
    if (std::equal(name.begin(), name.end(), category.begin(), category.end(),
                   [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); }))
      return std::string(category);
  }
  for (const auto& [long_name, category] : kLong) {
    if (name == long_name) return std::string(category);
  }
  return std::nullopt;
}

std::string assigned_items() {
  std::string items;
  for (const char* category : {"L", "M", "N", "P", "S", "Z"}) items += category_items(category);
  return items;
}

}  // namespace

CharacterSet CharacterSet::of_items(std::string items) {
  CharacterSet set;
  set.items_ = std::move(items);
  return set;
}

CharacterSet CharacterSet::of_expression(std::string expression) {
  CharacterSet set;
  set.others_.push_back(std::move(expression));
  return set;
}

CharacterSet CharacterSet::space() {
  return of_items(R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})");
}

CharacterSet CharacterSet::word() {
  std::string items;
  for (const char* category : {"L", "M", "Nd", "Nl", "Pc"}) items += category_items(category);
  // Letters in circles and squares, which are alphabetic, and the numbers of Latin-1, by Oniguruma's own table for it.
  return of_items(items + R"(\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})"
                          R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})");
}

CharacterSet CharacterSet::hexadecimal() { return of_items("0-9A-Fa-f"); }

std::optional<CharacterSet> CharacterSet::property(std::string_view name) {
  if (const std::optional<std::string> category = category_named(name)) return of_items(category_items(*category));
  if (name == "word") return word();
  if (name == "space" || name == "whitespace") return space();
  if (name == "any") return of_items(R"(\x{0}-\x{10FFFF})");
  if (name == "ascii") return of_items(R"(\x{0}-\x{7F})");
  // Not by PCRE2's tables, to which what was assigned since is still unassigned.
  if (name == "c" || name == "other") return of_items(assigned_items()).complement();
  if (name == "cn" || name == "unassigned")
    return of_items(assigned_items() + R"(\p{Cc}\p{Cf}\p{Co}\p{Cs})").complement();
  for (const unicode::ScriptRanges& script : unicode::kScripts) {
    if (script.name != name) continue;
    CharacterSet set;
    for (const unicode::CodePointRange& range : script.ranges) set.add(range.first, range.last);
    return set;
  }
  return std::nullopt;
}

void CharacterSet::add(char32_t first, char32_t last) { items_ += range_item(first, last); }

void CharacterSet::add(const CharacterSet& other) {
  items_ += other.items_;
  others_.insert(others_.end(), other.others_.begin(), other.others_.end());
}

CharacterSet CharacterSet::intersection(const CharacterSet& other) const {
  return of_expression("(?:(?=" + expression() + ")" + other.expression() + ")");
}

CharacterSet CharacterSet::complement() const {
  if (others_.empty()) return of_expression(items_.empty() ? "(?s:.)" : "[^" + items_ + "]");
  return of_expression("(?:(?!" + expression() + ")(?s:.))");
}

std::string CharacterSet::expression() const {
  if (others_.size() == 1 && items_.empty()) return others_[0];
  std::string either = items_.empty() ? "" : "[" + items_ + "]";
  for (const std::string& other : others_) either += (either.empty() ? "" : "|") + other;
  if (either.empty()) return "(?!)";
  return others_.empty() ? either : "(?:" + either + ")";
}

}  // namespace gpt::tokenizer
