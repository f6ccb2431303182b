// Text to token ids and back. One interface, one factory; a tokenizer is stored as JSON inside the checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt {

// A token that stands for no text of its own, such as <|endoftext|>.
struct SpecialToken {
  std::string text;
  int32_t id;
  bool operator==(const SpecialToken&) const = default;
};

// Immutable, and safe to use from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string name() const = 0;  // "char", "byte", "bpe"
  virtual int64_t vocab_size() const = 0;
  virtual std::span<const SpecialToken> special_tokens() const { return {}; }
  std::optional<int32_t> end_of_text()
      const;  // the special token <|endoftext|> (or </s>, <|end_of_text|>), if there is one

  // Appends the ids of `text`, in which special tokens are ordinary text: for data. Throws TextError for a character that
  // the vocabulary lacks, InvalidUtf8 if the tokenizer needs UTF-8 and the text is not.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  std::vector<int32_t> encode(std::string_view text) const;
  // The same, but the text of a special token becomes its id (the longest if several match): for prompts.
  std::vector<int32_t> encode_with_specials(std::string_view text) const;
  // The bytes of the ids, concatenated. Throws gpt::Error(data) for an id outside the vocabulary.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  // How many bytes of text each id stands for; special tokens stand for none.
  std::vector<int32_t> text_bytes() const;

  // The last position in (0, text.size()) where the text can be cut, whatever follows it: the ids of the first part
  // followed by those of the second are the ids of the whole. 0 if there is none. This lets threads share a long text.
  virtual size_t last_cut(std::string_view text) const = 0;

  virtual std::string to_json() const = 0;  // self-contained; equal tokenizers give equal text
};

// `spec` is one of
//   char   the vocabulary is the code points of `training_text`, sorted
//   byte   one id per byte
//   gpt2   GPT-2's vocabulary, which the set-up installed
//   bpe:N  byte-level BPE with a vocabulary of N trained on `training_text`
//   FILE   Hugging Face's tokenizer.json, FILE.tiktoken, vocab.bpe with encoder.json beside it, or a saved tokenizer
// Throws gpt::Error: config for an unknown spec, data for a bad file or text that is not UTF-8.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec, std::string_view training_text);

// N for a `spec` bpe:N, nothing for any other. Throws gpt::Error(config) if N is not a number above 0.
std::optional<int64_t> trained_vocabulary(const std::string& spec);

// Throws gpt::Error(checkpoint) if `spec` is gpt2 or a file and names another tokenizer than the one with the JSON `saved`,
// which is that of a checkpoint: a run continues with it, so another one would be ignored or give the ids another meaning.
void require_same_tokenizer(const std::string& spec, const std::string& saved);

// The inverse of to_json(); also reads Hugging Face's tokenizer.json. `origin` names the source in errors.
std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view json, const std::string& origin);

}  // namespace gpt
