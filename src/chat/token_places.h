// Which tokens of a text lie behind a place in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpt/tokenizer/tokenizer.h"
#include "marked_words.h"

namespace gpt::chat {

class TokenPlaces {
 public:
  // Encodes the text as encode_plain() does. `tokenizer` must outlive it.
  TokenPlaces(PlainText text, const tokenizer::Tokenizer& tokenizer);

  const std::vector<int32_t>& ids() const { return ids_; }
  // The first that begins at byte `offset` of the text or behind it; the number of ids where none does.
  size_t first_from(size_t offset) const;

 private:
  size_t place_of(size_t offset) const;

  const PlainText text_;
  const tokenizer::Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;
  std::vector<size_t> begins_;  // of each, in the texts of the tokens, one behind the other; at the end, their length
  bool is_exact_ = false;       // those texts are the text
};

}  // namespace gpt::chat
