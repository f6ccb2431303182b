// One id per byte: no vocabulary to build, nothing it cannot encode.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/tokenizer/tokenizer.h"

namespace gpt::tokenizer {

class ByteTokenizer final : public Tokenizer {
 public:
  std::string name() const override { return "byte"; }
  int64_t vocab_size() const override { return 256; }
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  size_t last_cut(std::string_view text) const override { return text.empty() ? 0 : text.size() - 1; }
  std::string to_json() const override { return R"({"type":"byte"})"; }
};

}  // namespace gpt::tokenizer
