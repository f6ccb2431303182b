// Text that a tokenizer cannot encode: where, and why.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "gpt/core/error.h"

namespace gpt {

class TextError : public Error {
 public:
  TextError(size_t offset, std::string why)
      : Error(ExitCode::data, "byte " + std::to_string(offset) + ": " + why), offset_(offset), why_(std::move(why)) {}
  size_t offset() const { return offset_; }  // in bytes, of the text that was to be encoded
  const std::string& why() const { return why_; }

 private:
  size_t offset_;
  std::string why_;
};

class InvalidUtf8 : public TextError {
  using TextError::TextError;
};

}  // namespace gpt
