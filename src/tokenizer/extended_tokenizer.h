// A tokenizer of characters or bytes with special tokens behind its own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/tokenizer/tokenizer.h"

namespace gpt::tokenizer {

class ExtendedTokenizer final : public Tokenizer {
 public:
  static constexpr const char* kSpecialTokens = "special_tokens";  // what the JSON has beside that of the base

  // `base` decodes id by id. The texts are distinct, and none is empty.
  ExtendedTokenizer(std::unique_ptr<const Tokenizer> base, const std::vector<std::string>& texts);

  std::string name() const override { return base_->name(); }
  int64_t vocab_size() const override { return base_->vocab_size() + static_cast<int64_t>(special_tokens_.size()); }
  std::span<const SpecialToken> special_tokens() const override { return special_tokens_; }
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override { base_->encode(text, ids); }
  std::string decode(std::span<const int32_t> ids) const override;
  size_t last_cut(std::string_view text) const override { return base_->last_cut(text); }
  std::string to_json() const override;

 private:
  std::unique_ptr<const Tokenizer> base_;
  std::vector<SpecialToken> special_tokens_;
};

}  // namespace gpt::tokenizer
