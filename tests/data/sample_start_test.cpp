#include "gpt/data/sample_start.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpt/tokenizer/make_tokenizer.h"

namespace gpt::data {
namespace {

std::vector<int32_t> repeated(std::vector<int32_t> ids, int times) {
  std::vector<int32_t> result;
  for (int i = 0; i < times; ++i) result.insert(result.end(), ids.begin(), ids.end());
  return result;
}

TEST(SampleStart, IsATokenThatTrainingSeesOften) {
  const auto bpe = tokenizer::make_tokenizer("bpe:300", "some words of a text\nand some more words of a text\n");
  const int32_t end = *bpe->end_of_text(), newline = bpe->encode("\n").at(0), letter = bpe->encode("z").at(0);
  const auto start = [&](const std::vector<std::vector<int32_t>>& sources) {
    std::vector<Tokens> tokens;
    for (const auto& ids : sources) tokens.push_back(Tokens::from_ids(ids, bpe->vocab_size()));
    return sample_start(*bpe, tokens);
  };
  EXPECT_EQ(start({repeated({letter, newline, letter, end}, 20)}), end);
  EXPECT_EQ(start({repeated({letter, newline}, 20)}), newline);  // the end of a single book is for validation
  std::vector<int32_t> few = repeated({letter, newline}, 20);
  few.push_back(end);
  EXPECT_EQ(start({few}), newline);
  EXPECT_EQ(start({repeated({letter}, 20)}), letter);
  EXPECT_EQ(start({repeated({letter}, 20), repeated({end, newline}, 10)}), end);  // in any of the sources
  EXPECT_EQ(start({{}}), std::nullopt);
  const auto characters = tokenizer::make_tokenizer("char", "ab");
  EXPECT_EQ(sample_start(*characters, {Tokens::from_ids({0, 1, 1}, 2)}), 1);
}

}  // namespace
}  // namespace gpt::data
