#include "char_tokenizer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/tokenizer/text_error.h"
#include "gpt/tokenizer/utf8.h"

namespace gpt::tokenizer {

CharTokenizer CharTokenizer::from_text(std::string_view text) {
  std::vector<bool> seen(utf8::kCodePoints);
  for (size_t offset = 0; offset < text.size();) {
    const auto [value, bytes] = utf8::decode(text, offset);
    seen[value] = true;
    offset += bytes;
  }
  std::vector<char32_t> characters;
  for (char32_t value = 0; value < utf8::kCodePoints; ++value) {
    if (seen[value]) characters.push_back(value);
  }
  return CharTokenizer(std::move(characters));
}

CharTokenizer::CharTokenizer(std::vector<char32_t> characters)
    : characters_(std::move(characters)), page_of_(utf8::kCodePoints >> kPageBits, 0), pages_(1) {
  pages_[0].fill(-1);
  for (size_t id = 0; id < characters_.size(); ++id) {
    uint16_t& page = page_of_[characters_[id] >> kPageBits];
    if (page == 0) {
      page = static_cast<uint16_t>(pages_.size());
      pages_.push_back(pages_[0]);
    }
    pages_[page][characters_[id] % Page{}.size()] = static_cast<int32_t>(id);
  }
}

void CharTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  size_t count = ids.size();
  ids.resize(count + text.size());  // enough: a character has at least one byte
  for (size_t offset = 0; offset < text.size();) {
    const auto [value, bytes] = utf8::decode(text, offset);
    const int32_t id = pages_[page_of_[value >> kPageBits]][value % Page{}.size()];
    if (id < 0) {
      throw TextError(
          offset,
          fmt::format("{} is not in the vocabulary of {} characters of the char tokenizer", utf8::describe(value),
                      vocab_size()),
          "leave it out of the text, or begin a run with --tokenizer byte or bpe:N, which can encode any text");
    }
    ids[count++] = id;
    offset += bytes;
  }
  ids.resize(count);
}

size_t CharTokenizer::last_cut(std::string_view text) const { return utf8::last_character(text); }

std::string CharTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) {
      throw Error(ExitCode::data,
                  fmt::format("token id {} is outside the vocabulary of {} characters", id, vocab_size()));
    }
    utf8::append(text, characters_[id]);
  }
  return text;
}

std::string CharTokenizer::to_json() const {
  nlohmann::ordered_json json = {{"type", "char"}, {"characters", nlohmann::ordered_json::array()}};
  for (const char32_t value : characters_) {
    std::string text;
    utf8::append(text, value);
    json["characters"].push_back(std::move(text));
  }
  return json.dump();
}

}  // namespace gpt::tokenizer
