#include "gpt/generate/prompt.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "gpt/tokenizer/utf8.h"
#include "support/expect_error.h"

namespace gpt::generate {
namespace {

TEST(EncodePrompt, GivesTheTokensOfTheText) {
  const auto tokenizer = tokenizer::make_tokenizer("char", "abc\n");
  EXPECT_EQ(encode_prompt(*tokenizer, "cab"), tokenizer->encode("cab"));
  EXPECT_EQ(encode_prompt(*tokenizer, ""), tokenizer->encode("\n"));
  EXPECT_EQ(encode_prompt(*tokenizer::make_tokenizer("char", "abc"), ""), std::vector<int32_t>{0});
}

TEST(EncodePrompt, BeginsWithWhatTheModelHasSeenBeforeEveryText) {
  const auto tokenizer = tokenizer::make_tokenizer("char", "abc");
  const PromptStart start{.alone = 1, .prefix = {2, 0}};
  EXPECT_EQ(encode_prompt(*tokenizer, "bb", "prompt", start), (std::vector<int32_t>{2, 0, 1, 1}));
  EXPECT_EQ(encode_prompt(*tokenizer, "cab", "prompt", start), (std::vector<int32_t>{2, 0, 1}))
      << "it is there already";
  EXPECT_EQ(encode_prompt(*tokenizer, "c", "prompt", start), (std::vector<int32_t>{2, 0, 2}));
  EXPECT_EQ(encode_prompt(*tokenizer, "", "prompt", start), start.prefix);
  EXPECT_EQ(encode_prompt(*tokenizer, "", "prompt", {.alone = 1}), std::vector<int32_t>{1});
}

TEST(EncodePrompt, NamesTheCharacterAndWhatTheModelKnows) {
  const auto tokenizer = tokenizer::make_tokenizer("char", "\n\t abcdxy0123456789:;\u00e9\a");
  EXPECT_ERROR(encode_prompt(*tokenizer, "ab\u00c4"), ExitCode::data, "byte 2: 'Ä' (U+00C4)");
  EXPECT_ERROR(encode_prompt(*tokenizer, "ab\u00c4"), ExitCode::data,
               "of the char tokenizer; this model knows only: U+0007 tab newline space 0-9 : ; a-d x y é");
}

TEST(EncodePrompt, CutsALongListOfCharacters) {
  std::string every_other;
  for (char32_t c = 0x4E00; c < 0x4F00; c += 2) utf8::append(every_other, c);
  const auto tokenizer = tokenizer::make_tokenizer("char", every_other);
  EXPECT_ERROR(encode_prompt(*tokenizer, "a"), ExitCode::data, " and others");
}

TEST(EncodePrompt, SaysWhereThePromptIsNoUtf8) {
  EXPECT_ERROR(encode_prompt(*tokenizer::make_tokenizer("char", "abc"), "a\xFF"), ExitCode::data,
               "prompt, byte 1: 0xFF is not valid UTF-8; this model knows only");
  EXPECT_ERROR(encode_prompt(*tokenizer::make_tokenizer("char", "abc"), "a\xFF", "notes.txt"), ExitCode::data,
               "notes.txt, byte 1: ");
  EXPECT_EQ(encode_prompt(*tokenizer::make_tokenizer("byte", ""), "\xFF"), std::vector<int32_t>{255});
}

}  // namespace
}  // namespace gpt::generate
