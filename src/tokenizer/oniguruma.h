// Regular expressions as tokenizer.json spells them, which is Oniguruma's way, in the spelling of PCRE2.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace gpt::tokenizer {

// What a pattern has that is malformed or unknown here, as in "it has a back reference".
class PatternError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// An expression that matches in PCRE2 (UTF and MULTILINE, without UCP) what `pattern` matches in Oniguruma 6.9.10 with
// its default syntax and UTF-8: ^ and $ at each line, {n,m}+ as a repetition that is repeated, \h a hexadecimal digit,
// && in classes, and \p, \d, \s and \w as of Unicode 16. Groups capture nothing. Throws PatternError for what has no
// equivalent: back references, names of properties that are not in use, and other rare constructs.
std::string pcre2_pattern(std::string_view pattern);

}  // namespace gpt::tokenizer
