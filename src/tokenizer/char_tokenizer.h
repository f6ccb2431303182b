// One id per code point, in the order of the vocabulary.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/tokenizer/tokenizer.h"

namespace gpt::tokenizer {

class CharTokenizer final : public Tokenizer {
 public:
  static CharTokenizer from_text(std::string_view text);     // the code points of the text, sorted
  explicit CharTokenizer(std::vector<char32_t> characters);  // distinct

  std::string name() const override { return "char"; }
  int64_t vocab_size() const override { return static_cast<int64_t>(characters_.size()); }
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  size_t last_cut(std::string_view text) const override;
  std::string to_json() const override;

 private:
  static constexpr int kPageBits = 8;
  using Page = std::array<int32_t, 1 << kPageBits>;  // ids of neighbouring code points, -1 where there is none

  std::vector<char32_t> characters_;
  std::vector<uint16_t> page_of_;  // code point >> kPageBits -> index into pages_; page 0 is the empty one
  std::vector<Page> pages_;
};

}  // namespace gpt::tokenizer
