// A byte-level BPE vocabulary: what its files hold, training makes and BpeTokenizer encodes with.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gpt/tokenizer/pre_tokenizer.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::tokenizer {

struct BpeModel {
  static constexpr int64_t kMostTokens = (1 << 21) - 1;  // and merges: what the encoder's table of rules has room for

  std::vector<std::string> tokens;                  // the bytes of each id (of a special token: its text)
  std::vector<std::pair<int32_t, int32_t>> merges;  // pairs of ids, each once; the first is merged first
  std::vector<SpecialToken> special_tokens;         // sorted by id
  SplitPattern split = SplitPattern::gpt2;
  bool ignore_merges = false;  // a piece that is a token becomes that token, whatever the merges say
  bool operator==(const BpeModel&) const = default;
};

}  // namespace gpt::tokenizer
