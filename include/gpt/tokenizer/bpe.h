// Byte-level byte-pair encoding (Sennrich et al. 2016; bytes as in GPT-2, Radford et al. 2019).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/tokenizer/bpe_model.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::tokenizer {

class BpeTokenizer final : public Tokenizer {
 public:
  // In bytes. A longer piece, which no language has, is encoded in parts of this length, so that memory stays bounded.
  static constexpr size_t kLongestPiece = size_t{1} << 20;

  // Throws gpt::Error(data), beginning with `origin`: a byte without a token, a merge of unknown ids or whose product is
  // not a token, two tokens with the same bytes.
  explicit BpeTokenizer(BpeModel model, const std::string& origin = "BPE model");
  ~BpeTokenizer() override;

  std::string name() const override { return "bpe"; }
  int64_t vocab_size() const override;
  std::span<const SpecialToken> special_tokens() const override;
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  void encode_piece(std::string_view piece, std::vector<int32_t>& ids) const;  // what is not to be split
  std::string decode(std::span<const int32_t> ids) const override;
  size_t last_cut(std::string_view text) const override;
  std::string to_json() const override;  // Hugging Face's tokenizer.json
  const BpeModel& model() const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace gpt::tokenizer
