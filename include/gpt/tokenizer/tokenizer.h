// Text to token ids and back. One interface, one factory; a tokenizer travels as JSON inside the checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string name() const = 0;  // "char", "byte"
  virtual int64_t vocab_size() const = 0;
  // Throws gpt::Error(data) naming the byte offset and the character that the vocabulary lacks.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // The bytes of the ids, concatenated. Throws gpt::Error(data) for an id outside the vocabulary.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  virtual std::optional<int32_t> end_of_text() const { return std::nullopt; }
  virtual std::string to_json() const = 0;  // self-contained; equal tokenizers give equal text
};

// `spec` is `char` (the vocabulary is the code points of `training_text`, sorted), `byte`, or the path of a saved
// tokenizer. Throws gpt::Error: config for an unknown spec, data for a bad file or text that is not UTF-8.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec, std::string_view training_text);

// The inverse of to_json(). `origin` names the source in errors.
std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view json, const std::string& origin);

}  // namespace gpt
