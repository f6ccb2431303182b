// Words of a dialogue on their way through a template. While they are rendered, characters that mean nothing (Unicode's noncharacters) stand
// in them: one for a character of what reads like a special token, so that the template's own tokens can be told from it afterwards, and a
// pair around the number of an answer whose ids are kept. A mark counts as one character, as what it stands for does.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gpt/chat/dialogue.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::chat {

// A text without marks, and which of its bytes belong to no special token.
struct PlainText {
  std::string text;
  std::vector<size_t> plain;
};

// Its special tokens become their ids, but for those that would cover such a byte.
void encode_plain(const PlainText& text, const tokenizer::Tokenizer& tokenizer, std::vector<int32_t>& ids);

// Where the number of an answer stands in a text.
struct AnswerPlace {
  size_t message, begin, end;
};

class MarkedWords {
 public:
  // Marks that the dialogue or `source`, the template, have themselves are not used. What is trusted gets none, but for kept answers. Throws
  // gpt::Error(data) where none is left.
  MarkedWords(const Dialogue& dialogue, std::string_view source, const tokenizer::Tokenizer& tokenizer, Markup markup);

  const std::vector<std::string>& contents() const { return contents_; }  // of the messages
  std::string answer(size_t message) const;                               // what stands for it

  std::optional<AnswerPlace> next_answer(std::string_view text, size_t from) const;
  PlainText without_marks(std::string_view text) const;

 private:
  std::string protect(std::string_view content, std::span<const tokenizer::SpecialToken> specials);
  std::string mark_for(std::string_view character);

  std::vector<std::string> free_marks_;
  std::string around_answers_;
  std::unordered_map<std::string, std::string> marks_, meanings_;  // of a character; of a mark
  std::vector<std::string> contents_;
};

}  // namespace gpt::chat
