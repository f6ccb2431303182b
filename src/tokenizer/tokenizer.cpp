#include "gpt/tokenizer/tokenizer.h"

namespace gpt {

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

std::vector<int32_t> Tokenizer::text_bytes() const {
  std::vector<int32_t> bytes(static_cast<size_t>(vocab_size()));
  for (int32_t id = 0; id < vocab_size(); ++id) bytes[id] = static_cast<int32_t>(decode({&id, 1}).size());
  for (const SpecialToken& special : special_tokens()) bytes[special.id] = 0;
  return bytes;
}

std::optional<int32_t> Tokenizer::end_of_text() const {
  for (const std::string_view name : {"<|endoftext|>", "<|end_of_text|>", "</s>"}) {
    for (const SpecialToken& special : special_tokens()) {
      if (special.text == name) return special.id;
    }
  }
  return std::nullopt;
}

}  // namespace gpt
