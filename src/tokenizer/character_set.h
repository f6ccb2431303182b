// A set of characters as an expression of PCRE2 that matches one of them, by the tables of Unicode 16 although PCRE2's
// own may be older.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpt::tokenizer {

class CharacterSet {
 public:
  CharacterSet() = default;  // none

  // As Oniguruma defines \s, \w and \h.
  static CharacterSet space();
  static CharacterSet word();
  static CharacterSet hexadecimal();
  // A general category, a script in use or one of a few other names, in lower case without spaces and dashes; nothing if
  // the name is not known.
  static std::optional<CharacterSet> property(std::string_view name);

  void add(char32_t first, char32_t last);
  void add(const CharacterSet& other);
  CharacterSet intersection(const CharacterSet& other) const;
  CharacterSet complement() const;

  std::string expression() const;

 private:
  static CharacterSet of_items(std::string items);
  static CharacterSet of_expression(std::string expression);

  std::string items_;                // what stands in brackets
  std::vector<std::string> others_;  // expressions, each for one character
};

}  // namespace gpt::tokenizer
