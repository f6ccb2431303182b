#include "gpt/tokenizer/tokenizer.h"

#include <cctype>

namespace gpt::tokenizer {

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  encode(text, ids);
  return ids;
}

std::vector<int32_t> Tokenizer::encode_with_specials(std::string_view text) const {
  const std::span<const SpecialToken> specials = special_tokens();
  std::vector<size_t> found;  // where each comes next; searched for again only once that is passed
  for (const SpecialToken& special : specials) found.push_back(text.find(special.text));

  std::vector<int32_t> ids;
  for (size_t begin = 0; begin < text.size();) {
    const SpecialToken* next = nullptr;
    size_t at = text.size();
    for (size_t i = 0; i < specials.size(); ++i) {
      if (found[i] < begin) found[i] = text.find(specials[i].text, begin);
      const bool longer = next && found[i] == at && specials[i].text.size() > next->text.size();
      if (found[i] < at || longer) at = found[i], next = &specials[i];
    }
    encode(text.substr(begin, at - begin), ids);
    if (!next) break;
    ids.push_back(next->id);
    begin = at + next->text.size();
  }
  return ids;
}

std::string Tokenizer::piece(int32_t id, bool) const { return decode({&id, 1}); }

std::vector<int32_t> Tokenizer::text_bytes() const {
  std::vector<int32_t> bytes(static_cast<size_t>(vocab_size()));
  for (int32_t id = 0; id < vocab_size(); ++id) bytes[id] = static_cast<int32_t>(piece(id, false).size());
  for (const SpecialToken& special : special_tokens()) bytes[special.id] = 0;
  return bytes;
}

namespace {

// "eos" of "<|EOS|>": the letters and digits of ASCII, in lower case.
std::string bare_name(std::string_view token) {
  std::string name;
  for (const char c : token) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && std::isalnum(byte)) name += static_cast<char>(std::tolower(byte));
  }
  return name;
}

// The special token that has the first of these names which the tokenizer has. "s" is <s> or </s>: which of them, `s` says.
std::optional<int32_t> named(std::span<const SpecialToken> specials, std::span<const std::string_view> names,
                             std::string_view s) {
  for (const std::string_view name : names) {
    for (const SpecialToken& special : specials) {
      if (bare_name(special.text) == name && (name != "s" || special.text == s)) return special.id;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<int32_t> Tokenizer::end_of_text() const {
  constexpr std::string_view kNames[] = {"endoftext", "s",   "endofsentence", "endofdocument", "eos",
                                         "eod",       "eot", "eotid",         "imend",         "sep"};
  return named(special_tokens(), kNames, "</s>");
}

std::optional<int32_t> Tokenizer::begin_of_text() const {
  constexpr std::string_view kNames[] = {"beginoftext", "startoftext", "beginofsentence", "bos", "s"};
  return named(special_tokens(), kNames, "<s>");
}

}  // namespace gpt::tokenizer
