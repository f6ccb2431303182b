// Tokens of conversations with marks, made up for a test.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gpt/data/token_file.h"

namespace gpt::test {

struct MarkedIds {
  std::vector<int32_t> ids;
  std::vector<uint8_t> marks;  // TokenMark

  data::Tokens tokens(int64_t vocab_size) const {
    const auto kept = std::make_shared<const std::vector<uint8_t>>(marks);
    return data::Tokens::from_ids(ids, vocab_size).with_marks(kept, kept->data());
  }
};

// Turns of `question` tokens that are not learned and `answer` that are, until there are `length`; each ends with a mark. The ids are
// drawn from [0, vocab_size).
inline void add_conversation(MarkedIds& to, int64_t length, int64_t question, int64_t answer, int64_t vocab_size,
                             std::mt19937& generator) {
  std::uniform_int_distribution<int32_t> any(0, static_cast<int32_t>(vocab_size) - 1);
  for (int64_t i = 0; i < length; ++i) {
    const int64_t in_turn = i % (question + answer);
    uint8_t mark = i == 0 ? data::TokenMark::kBegins : 0;
    if (in_turn >= question) mark |= data::TokenMark::kLearned;
    if (in_turn == question - 1 || in_turn == question + answer - 1) mark |= data::TokenMark::kEnds;
    to.ids.push_back(any(generator));
    to.marks.push_back(mark);
  }
}

// Conversations of these lengths, one after the other, with short turns.
inline MarkedIds conversations(const std::vector<int64_t>& lengths, int64_t vocab_size, uint32_t seed = 1) {
  MarkedIds all;
  std::mt19937 generator(seed);
  for (const int64_t length : lengths) add_conversation(all, length, 2, 3, vocab_size, generator);
  return all;
}

}  // namespace gpt::test
