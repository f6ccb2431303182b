#include "gpt/evaluate/requests.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "evaluate/fixture_model.h"
#include "gpt/exchange/tokenizer_files.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "support/expect_error.h"

namespace gpt::evaluate {
namespace {

class EncodePairTest : public testing::Test {
 protected:
  std::string scored_text(const Request& request) const {
    return tokenizer_->decode({request.ids.end() - request.scored, request.ids.end()});
  }

  const std::unique_ptr<tokenizer::Tokenizer> tokenizer_ = std::move(test::FixtureModel().tokenizer);
  const Encoding encoding_{*tokenizer_, 16};
};

TEST_F(EncodePairTest, TheContinuationIsWhatBothHaveBeyondTheContext) {
  const Request request = encode_pair(encoding_, "The fox", " and the dog");
  EXPECT_EQ(scored_text(request), " and the dog");
  EXPECT_EQ(request.ids, tokenizer_->encode("The fox and the dog"));
  EXPECT_FALSE(request.is_cut);
}

TEST_F(EncodePairTest, WhiteSpaceAtTheEndOfTheContextBelongsToTheContinuation) {
  for (const std::string space : {" ", "  ", "\n", "\u00a0", "\u3000 "}) {
    const Request request = encode_pair(encoding_, "The fox" + space, "sings");
    EXPECT_EQ(scored_text(request), space + "sings");
  }
}

// As lm-evaluation-harness 0.4.13 calls the tokenizer: with its special tokens, unless the context is empty.
TEST_F(EncodePairTest, TextsBeginWithWhatTheModelHasSeenBeforeThem) {
  const Encoding encoding(*tokenizer_, 16, {7, 5});
  const Request without = encode_pair(encoding_, "The fox", " and the dog"),
                with = encode_pair(encoding, "The fox", " and the dog");
  EXPECT_EQ(with.scored, without.scored);
  EXPECT_EQ(std::vector<int32_t>(with.ids.begin(), with.ids.begin() + 2), (std::vector<int32_t>{7, 5}));
  EXPECT_EQ(std::vector<int32_t>(with.ids.begin() + 2, with.ids.end()), without.ids);
  EXPECT_EQ(encode_pair(encoding, "", "The fox").ids, encode_pair(encoding_, "", "The fox").ids);
}

TEST_F(EncodePairTest, NothingComesAfterTheTokenThatBeginsATextElseAfterTheOneThatEndsIt) {
  const Request request = encode_pair(encoding_, "", "The fox");
  ASSERT_TRUE(tokenizer_->end_of_text());
  EXPECT_EQ(request.ids[0], *tokenizer_->end_of_text());
  EXPECT_EQ(request.scored, std::ssize(request.ids) - 1);
  // It is not doubled where the continuation begins with it.
  EXPECT_EQ(encode_pair(encoding_, "", "<|endoftext|>The fox").ids, request.ids);
  const auto bytes = tokenizer::make_tokenizer("byte", {});
  EXPECT_ERROR(encode_pair(Encoding(*bytes, 16), "", "a"), ExitCode::data, "no token that begins or ends a text");
  const auto both = exchange::tokenizer_from_hugging_face(
      R"({"version": "1.0", "added_tokens": [{"id": 2, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
          "normalized": false, "special": true}, {"id": 3, "content": "<s>", "single_word": false, "lstrip": false,
          "rstrip": false, "normalized": false, "special": true}],
          "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
          "decoder": {"type": "ByteLevel"},
          "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "</s>": 2, "<s>": 3}, "merges": []}})",
      "test");
  EXPECT_EQ(encode_pair(Encoding(*both, 16), "", "ab").ids, (std::vector<int32_t>{3, 0, 1}));
}

TEST_F(EncodePairTest, WhatIsTooLongIsCutFromTheLeft) {
  const std::string context = "The fox walks around the fence and goes home. It sings a song until the evening.";
  const Request request = encode_pair(encoding_, context, " Then it rains");
  const std::vector<int32_t> whole = tokenizer_->encode(context + " Then it rains");
  EXPECT_EQ(request.ids, std::vector<int32_t>(whole.end() - 17, whole.end()));  // 16 that are seen, and the last one
  EXPECT_EQ(scored_text(request), " Then it rains");
  EXPECT_TRUE(request.is_cut);
  EXPECT_ERROR(encode_pair(encoding_, "Then", " " + context), ExitCode::data, "and the window has 16");
  EXPECT_ERROR(encode_pair(encoding_, "Then", ""), ExitCode::data, "no token by itself");
}

struct Sizes {
  int64_t tokens, window, stride;
};

void PrintTo(const Sizes& sizes, std::ostream* out) {
  *out << sizes.tokens << " tokens, windows of " << sizes.window << ", stride " << sizes.stride;
}

class RollingWindowsTest : public testing::TestWithParam<Sizes> {};

// Ids that are their positions, so that a window says what it holds; the prefix is -1.
TEST_P(RollingWindowsTest, EveryTokenIsPredictedOnceWithTheContextThatThereIs) {
  const auto [tokens, window, stride] = GetParam();
  std::vector<int32_t> text(tokens);
  std::iota(text.begin(), text.end(), 0);
  for (const int64_t piece : {int64_t{1}, int64_t{5}, tokens}) {
    for (const bool has_prefix : {true, false}) {
      RollingWindows windows(window, stride);
      std::vector<Request> requests;
      const auto take = [&] {
        while (auto request = windows.next()) requests.push_back(std::move(*request));
      };
      windows.begin(has_prefix ? std::optional<int32_t>(-1) : std::nullopt);
      for (int64_t begin = 0; begin < tokens; begin += piece, take())
        windows.add(std::span(text).subspan(begin, std::min(piece, tokens - begin)));
      windows.end();
      take();
      int32_t next = has_prefix ? 0 : 1;
      for (const Request& request : requests) {
        const auto inputs = std::ssize(request.ids) - 1;
        EXPECT_LE(inputs, window);
        EXPECT_TRUE(std::is_sorted(request.ids.begin(), request.ids.end()));
        EXPECT_EQ(request.ids.back() - request.ids.front(), inputs) << "without a gap";
        EXPECT_EQ(request.ids[request.ids.size() - request.scored], next);
        const int64_t context = inputs - request.scored + 1, before = next + has_prefix;
        EXPECT_GE(context, std::min(before, window - stride + 1));
        // The last one is as long as it can be.
        EXPECT_TRUE(request.ids.back() + 1 < tokens || inputs == std::min(window, tokens - 1 + has_prefix));
        next += static_cast<int32_t>(request.scored);
      }
      EXPECT_EQ(next, std::max<int64_t>(tokens, has_prefix ? 0 : 1));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Texts, RollingWindowsTest,
                         testing::Values(Sizes{1, 8, 8}, Sizes{2, 8, 8}, Sizes{8, 8, 8}, Sizes{9, 8, 8},
                                         Sizes{16, 8, 8}, Sizes{17, 8, 8}, Sizes{100, 8, 3}, Sizes{64, 8, 1},
                                         Sizes{7, 8, 3}, Sizes{5, 1, 1}, Sizes{2000, 4, 3}));

}  // namespace
}  // namespace gpt::evaluate
