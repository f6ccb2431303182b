#include "extended_tokenizer.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace gpt::tokenizer {

ExtendedTokenizer::ExtendedTokenizer(std::unique_ptr<const Tokenizer> base, const std::vector<std::string>& texts)
    : base_(std::move(base)) {
  for (const std::string& text : texts) special_tokens_.push_back({text, static_cast<int32_t>(vocab_size())});
}

std::string ExtendedTokenizer::decode(std::span<const int32_t> ids) const {
  const auto first = static_cast<int32_t>(base_->vocab_size());
  std::string text;
  for (const int32_t& id : ids)
    text += id >= first && id < vocab_size() ? special_tokens_[id - first].text : base_->decode({&id, 1});
  return text;
}

std::string ExtendedTokenizer::to_json() const {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(base_->to_json());
  for (const SpecialToken& token : special_tokens_) json[kSpecialTokens].push_back(token.text);
  return json.dump();
}

}  // namespace gpt::tokenizer
