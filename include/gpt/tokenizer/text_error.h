// Text that a tokenizer cannot encode: where, why, and what to do about it where the tokenizer is still to be chosen.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "gpt/core/error.h"

namespace gpt::tokenizer {

class TextError : public Error {
 public:
  TextError(size_t offset, std::string why, std::string remedy)
      : Error(ExitCode::data, "byte " + std::to_string(offset) + ": " + why),
        offset_(offset),
        why_(std::move(why)),
        remedy_(std::move(remedy)) {}
  size_t offset() const { return offset_; }  // in bytes, of the text that was to be encoded
  const std::string& why() const { return why_; }
  const std::string& remedy() const { return remedy_; }
  std::string why_and_remedy() const { return why_ + "; " + remedy_; }

 private:
  size_t offset_;
  std::string why_, remedy_;
};

// The same of a file, once it is known where it lies: the message begins with the place.
class UnencodableText : public Error {
 public:
  explicit UnencodableText(const std::string& message) : Error(ExitCode::data, message) {}
};

class InvalidUtf8 : public TextError {
  using TextError::TextError;
};

}  // namespace gpt::tokenizer
