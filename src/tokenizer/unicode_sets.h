// Sets of characters that Hugging Face tokenizers knows in other versions of Unicode than the libraries that we use: its
// regular expressions are of Unicode 16, normalization of 9, digits of 17, and PCRE2's and utf8proc's are of 14 or later.
#pragma once

#include <span>
#include <string_view>

namespace gpt::unicode {

struct CodePointRange {
  char32_t first, last;
};

struct CategoryRange {
  char32_t first, last;
  std::string_view category;  // general category, such as "Lu"
};

struct ScriptRanges {
  std::string_view name;  // in lower case
  std::span<const CodePointRange> ranges;
};

extern const std::span<const CategoryRange> kAddedSinceUnicode14;  // what Unicode 16 has assigned since then
extern const std::span<const ScriptRanges> kScripts;
extern const std::span<const CodePointRange> kPunctuation;   // of the pre-tokenizer Punctuation
extern const std::span<const CodePointRange> kLaterNumbers;  // of the pre-tokenizer Digits, beside Unicode 16's
extern const std::span<const CodePointRange> kUnnormalized;  // which normalization leaves as they are

// Whether one of the ranges, which ascend, has `value`.
bool contains(std::span<const CodePointRange> ranges, char32_t value);

}  // namespace gpt::unicode
