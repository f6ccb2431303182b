// A tokenizer as a tokenizer.json describes it, with all that happens to a text before and after its pieces are merged.
// The file's text is its own form: it is kept and written as it was read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gpt/tokenizer/bpe.h"
#include "gpt/tokenizer/tokenizer.h"
#include "tokenizer_pipeline.h"

namespace gpt::tokenizer {

class PipelineTokenizer final : public Tokenizer {
 public:
  // `json` is the file's text. Throws gpt::Error(data), beginning with `origin`, for a vocabulary that contradicts
  // itself.
  PipelineTokenizer(TokenizerPipeline pipeline, std::string json, const std::string& origin);

  std::string name() const override { return "bpe"; }
  int64_t vocab_size() const override { return static_cast<int64_t>(tokens_.size()); }
  std::span<const SpecialToken> special_tokens() const override { return special_tokens_; }
  using Tokenizer::encode;
  // Throws InvalidUtf8 unless the file has no more than a split and special tokens.
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::vector<int32_t> encode_with_specials(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string piece(int32_t id, bool begins_text) const override;
  size_t last_cut(std::string_view text) const override;
  std::string to_json() const override { return json_; }

 private:
  void change(std::string& text) const;
  void encode_parts(std::string_view text, bool specials, std::vector<int32_t>& ids) const;
  void encode_part(std::string_view part, bool specials, bool starts_text, std::vector<int32_t>& ids) const;
  void split_from(size_t step, TextPiece piece, std::vector<int32_t>& ids) const;
  void encode_piece(std::string_view piece, std::vector<int32_t>& ids) const;
  const std::string& token_of(int32_t id) const;
  size_t start_of_token_across(std::string_view text, size_t cut) const;

  TokenizerPipeline pipeline_;
  const std::string json_;
  std::vector<SpecialToken> special_tokens_;
  AddedTokens in_text_, in_changed_text_;      // where tokens are looked for
  std::vector<std::string> tokens_;            // what decoding begins with: bytes, or the tokens of the decoder
  std::unique_ptr<const BpeTokenizer> bytes_;  // one of the two
  std::unique_ptr<const CharacterBpe> characters_;
  bool reads_bytes_ = false;  // any text is encoded, not only UTF-8
};

}  // namespace gpt::tokenizer
