#include "gpt/serve/completion_response.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "gpt/tokenizer/make_tokenizer.h"

namespace gpt::serve {
namespace {

using nlohmann::json;

const std::unique_ptr<tokenizer::Tokenizer>& bytes() {
  static const std::unique_ptr<tokenizer::Tokenizer> tokenizer = tokenizer::make_tokenizer("byte", "");
  return tokenizer;
}

TEST(CompletionResponse, PutsChoicesTogether) {
  CompletionWriter writer(*bytes(), "mine", 3, 2, false, {"<", ">"});
  writer.add({.choice = 1, .text = "b", .new_tokens = 2});
  writer.add({.choice = 0, .text = "a", .new_tokens = 1, .finish_reason = "stop"});
  EXPECT_FALSE(writer.is_complete());
  writer.add({.choice = 1, .text = "c", .new_tokens = 4, .finish_reason = "length"});
  ASSERT_TRUE(writer.is_complete());
  json answer = json::parse(writer.whole());
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_GT(answer["created"].get<int64_t>(), 1'700'000'000);
  answer.erase("id"), answer.erase("created");
  EXPECT_EQ(answer, json::parse(R"({"object": "text_completion", "model": "mine",
    "choices": [{"index": 0, "text": "<a", "logprobs": null, "finish_reason": "stop"},
                {"index": 1, "text": ">bc", "logprobs": null, "finish_reason": "length"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 7, "total_tokens": 10}})"));
}

TEST(CompletionResponse, StreamsPieces) {
  using Usage = CompletionWriter::UsageSoFar;
  CompletionWriter writer(*bytes(), "mine", 3, 1, false, {});
  EXPECT_EQ(writer.piece({.new_tokens = 1}, Usage::null), "");  // half a character
  const json first = json::parse(writer.piece({.text = "a", .new_tokens = 1}, Usage::null));
  EXPECT_EQ(first["choices"], json::parse(R"([{"index": 0, "text": "a", "logprobs": null, "finish_reason": null}])"));
  EXPECT_TRUE(first.contains("usage") && first["usage"].is_null());
  const json last = json::parse(writer.piece({.finish_reason = "length"}));
  EXPECT_EQ(last["choices"][0]["finish_reason"], "length");
  EXPECT_FALSE(last.contains("usage"));
  EXPECT_EQ(first["id"], last["id"]);
  const json told = json::parse(writer.piece({.text = "b", .new_tokens = 1}, Usage::told));
  EXPECT_EQ(told["usage"], json({{"prompt_tokens", 3}, {"completion_tokens", 3}, {"total_tokens", 6}}));
  const json usage = json::parse(writer.usage_piece());
  EXPECT_EQ(usage["choices"], json::array());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 3);
}

TEST(CompletionResponse, NamesTokensAndPlacesThem) {
  const float logprob = -0.1234567f;
  std::vector<TokenScore> scores = {{.id = 'a', .text = "a"}};  // the first of a prompt
  for (const char byte : std::string("é!"))
    scores.push_back({.id = static_cast<unsigned char>(byte),
                      .logprob = logprob,
                      .top = {{'x', -0.05f}, {0xff, -0.1f}},
                      .text = {byte}});
  const auto check = [&](const json& logprobs) {
    EXPECT_EQ(logprobs["tokens"], json({"a", "bytes:\\xc3", "bytes:\\xa9", "!"}));
    EXPECT_EQ(logprobs["text_offset"], json({0, 1, 1, 2}));  // the two bytes are one character
    EXPECT_TRUE(logprobs["token_logprobs"][0].is_null() && logprobs["top_logprobs"][0].is_null());
    EXPECT_EQ(logprobs["token_logprobs"][3].get<float>(), logprob);  // to the last digit
    EXPECT_EQ(logprobs["top_logprobs"][3], json({{"x", -0.05f}, {"bytes:\\xff", -0.1f}, {"!", logprob}}));
  };
  check(json::parse(LogprobsWriter(*bytes()).write(scores).dump()));
  CompletionWriter whole(*bytes(), "mine", 1, 1, true, {});
  for (const TokenScore& score : scores) whole.add({.scores = {score}});
  check(json::parse(whole.whole())["choices"][0]["logprobs"]);
}

// Tokens before the prompt's text, and ends of texts that are passed over, are no characters of it.
TEST(CompletionResponse, PlacesTokensWithoutTextWhereTheNextOneBegins) {
  const std::vector<TokenScore> scores = {{.id = 1}, {.id = 'H', .text = "H"}, {.id = 2}, {.id = 'i', .text = "i"}};
  const json logprobs = json::parse(LogprobsWriter(*bytes()).write(scores).dump());
  EXPECT_EQ(logprobs["text_offset"], json({0, 0, 1, 1}));
}

// Whatever ids a model writes, the answer is JSON in UTF-8.
TEST(CompletionResponse, IsAlwaysJson) {
  CompletionWriter writer(*bytes(), "m\xff", 1, 1, false, {"\xfe"});
  writer.add({.text = "\xc3", .finish_reason = "stop"});
  EXPECT_EQ(json::parse(writer.whole())["choices"][0]["text"], "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(CompletionResponse, TellsAChatAsOpenAIDoes) {
  CompletionWriter whole(*bytes(), "mine", 3, 1, true, {}, AnswerForm::chat);
  whole.add({.choice = 0,
             .text = "a",
             .scores = {{'a', -0.5F, {{'a', -0.5F}, {'b', -1.0F}}}},
             .new_tokens = 1,
             .finish_reason = "stop"});
  json answer = json::parse(whole.whole());
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["choices"],
            json::parse(R"([{"index": 0, "message": {"role": "assistant", "content": "a", "refusal": null},
    "logprobs": {"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [
      {"token": "a", "logprob": -0.5, "bytes": [97]}, {"token": "b", "logprob": -1.0, "bytes": [98]}]}], "refusal": null},
    "finish_reason": "stop"}])"));

  CompletionWriter stream(*bytes(), "mine", 3, 2, false, {}, AnswerForm::chat);
  const auto choice = [&](const TextEvent& event) { return json::parse(stream.piece(event))["choices"][0]; };
  EXPECT_EQ(
      choice({.choice = 1, .text = "b", .new_tokens = 1}),
      json::parse(
          R"({"index": 1, "delta": {"role": "assistant", "content": "b"}, "logprobs": null, "finish_reason": null})"));
  EXPECT_EQ(choice({.choice = 1, .text = "c", .new_tokens = 1})["delta"], json::parse(R"({"content": "c"})"));
  EXPECT_EQ(choice({.choice = 1, .new_tokens = 1, .finish_reason = "stop"}),
            json::parse(R"({"index": 1, "delta": {}, "logprobs": null, "finish_reason": "stop"})"));
  EXPECT_EQ(choice({.choice = 0, .new_tokens = 1, .finish_reason = "length"})["delta"],
            json::parse(R"({"role": "assistant", "content": ""})"));
  EXPECT_EQ(json::parse(stream.usage_piece())["object"], "chat.completion.chunk");
}

}  // namespace
}  // namespace gpt::serve
