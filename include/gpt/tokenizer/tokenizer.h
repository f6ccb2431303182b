// Text to token ids and back: the interface of every tokenizer. One is stored as JSON inside the checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt::tokenizer {

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
  // The special token that ends a text, known by its name: <|endoftext|>, </s>, [EOS] and what else is usual.
  std::optional<int32_t> end_of_text() const;
  // The one that begins a text, in the same way: <s>, <|begin_of_text|>, [BOS].
  std::optional<int32_t> begin_of_text() const;

  // Appends the ids of `text`, in which special tokens are ordinary text: for data. Throws TextError for a character that
  // the vocabulary lacks, InvalidUtf8 if the tokenizer needs UTF-8 and the text is not.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  std::vector<int32_t> encode(std::string_view text) const;
  // The same, but the text of a special token becomes its id (the longest if several match): for prompts.
  virtual std::vector<int32_t> encode_with_specials(std::string_view text) const;
  // The text of the ids. Throws gpt::Error(data) for an id outside the vocabulary.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  // The bytes of one id, which may be part of a character. Where the tokenizer puts a space before a text, decoding takes
  // it away again from an id that begins the text, and from no other.
  virtual std::string piece(int32_t id, bool begins_text) const;
  // How many bytes of text each id stands for; special tokens stand for none.
  std::vector<int32_t> text_bytes() const;

  // The last position in (0, text.size()) where the text can be cut, whatever follows it: the ids of the first part
  // followed by those of the second are the ids of the whole. 0 if there is none. This lets threads share a long text.
  virtual size_t last_cut(std::string_view text) const = 0;

  virtual std::string to_json() const = 0;  // self-contained; equal tokenizers give equal text
};

}  // namespace gpt::tokenizer
