#include "gpt/generate/prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "gpt/core/error.h"
#include "gpt/tokenizer/utf8.h"

namespace gpt::generate {
namespace {

std::string spoken(char32_t character) {
  if (character == '\n') return "newline";
  if (character == '\t') return "tab";
  if (character == ' ') return "space";
  std::string described = utf8::describe(character);  // 'é' (U+00E9), or a number for what cannot be shown
  if (!described.starts_with('\'')) return described;
  std::string text;
  utf8::append(text, character);
  return text;
}

// Digits and letters in a row are written as a run; signs are better seen one by one.
bool in_a_run(char32_t character, char32_t next) {
  const auto one_by_one = [](char32_t c) { return c < 0x80 && !std::isalnum(static_cast<unsigned char>(c)); };
  return next == character + 1 && !one_by_one(character) && !one_by_one(next);
}

// "newline space ! A-Z a-z": what a vocabulary of characters has, in the order of their code points.
std::string list_characters(const tokenizer::Tokenizer& tokenizer) {
  constexpr size_t kMostItems = 60;
  std::vector<char32_t> characters;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    characters.push_back(utf8::decode(tokenizer.decode({&id, 1}), 0).value);
  }
  std::sort(characters.begin(), characters.end());
  std::string list;
  size_t items = 0;
  for (size_t first = 0, last = 0; first < characters.size(); first = last + 1) {
    if (items++ == kMostItems) return list + " and others";
    last = first;
    while (last + 1 < characters.size() && in_a_run(characters[last], characters[last + 1])) ++last;
    if (last - first < 2) last = first;  // two neighbours are no run
    list += (list.empty() ? "" : " ") + spoken(characters[first]);
    if (last > first) list += "-" + spoken(characters[last]);
  }
  return list;
}

}  // namespace

std::vector<int32_t> with_prefix(const std::vector<int32_t>& prefix, std::vector<int32_t> ids) {
  const bool is_there = ids.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), ids.begin());
  if (!is_there) ids.insert(ids.begin(), prefix.begin(), prefix.end());
  return ids;
}

std::vector<int32_t> encode_prompt(const tokenizer::Tokenizer& tokenizer, std::string_view prompt,
                                   std::string_view name, const PromptStart& start) {
  if (prompt.empty()) {
    if (!start.prefix.empty()) return start.prefix;
    if (start.alone) return {*start.alone};
    if (const auto end_of_text = tokenizer.end_of_text()) return {*end_of_text};
    try {
      return tokenizer.encode("\n");
    } catch (const Error&) {
      return {0};  // a vocabulary without a newline: any token is as good a start
    }
  }
  try {
    return with_prefix(start.prefix, tokenizer.encode_with_specials(prompt));
  } catch (const Error& e) {
    if (tokenizer.name() != "char") throw Error(e.code(), fmt::format("{}, {}", name, e.what()));
    throw Error(e.code(), fmt::format("{}, {}; this model knows only: {}", name, e.what(), list_characters(tokenizer)));
  }
}

}  // namespace gpt::generate
