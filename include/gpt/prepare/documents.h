// The documents of text files, piece by piece, for whoever wants the text itself and not bins of its tokens.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/tokenizer/tokenizer.h"

namespace gpt::prepare {

class Documents {
 public:
  // `inputs` as PrepareOptions has them, and `tokenizer` that of the model, whose ends of text separate documents. `last_cut`: where a long document may be cut, as Tokenizer::last_cut() says. What cannot be read
  // is an error also where it was found in a folder: a loss over half of a text would be believed. Throws gpt::Error(data).
  Documents(const std::vector<std::string>& inputs, const std::string& text_field,
            const tokenizer::Tokenizer& tokenizer, std::function<size_t(std::string_view)> last_cut);
  ~Documents();
  Documents(const Documents&) = delete;
  Documents& operator=(const Documents&) = delete;

  // A document that is not long comes in one piece. Documents without text do not come.
  struct Piece {
    std::string text;
    bool first, last;  // of its document
  };
  // Nothing at the end. Throws gpt::Error: data, or interrupted where a signal ended the waiting for a pipe.
  std::optional<Piece> next();

  // "FILE: line 3: byte 5": where byte `offset` of the piece that came last is in the input.
  std::string place(size_t offset) const;
  double share() const;  // of the input that has come, about; 0 where a pipe is part of it

 private:
  struct Reading;
  std::unique_ptr<Reading> reading_;
};

}  // namespace gpt::prepare
