// Tokenizers for tests of chats.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpt/tokenizer/bpe.h"

namespace gpt::chat {

// A byte each, tokens of the `pairs` that merge two bytes, and special tokens behind them.
inline std::unique_ptr<const tokenizer::Tokenizer> byte_tokenizer(const std::vector<std::string>& specials,
                                                                  const std::vector<std::string>& pairs = {}) {
  tokenizer::BpeModel model;
  for (int byte = 0; byte < 256; ++byte) model.tokens.emplace_back(1, static_cast<char>(byte));
  for (const std::string& pair : pairs) {
    model.merges.emplace_back(static_cast<uint8_t>(pair[0]), static_cast<uint8_t>(pair[1]));
    model.tokens.push_back(pair);
  }
  for (const std::string& special : specials) {
    model.special_tokens.push_back({special, static_cast<int32_t>(model.tokens.size())});
    model.tokens.push_back(special);
  }
  return std::make_unique<tokenizer::BpeTokenizer>(std::move(model), "test");
}

}  // namespace gpt::chat
