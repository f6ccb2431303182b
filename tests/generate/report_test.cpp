#include "gpt/generate/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/captured_log.h"

namespace gpt::generate {
namespace {

GenerationResult result() {
  return {.text = "lé\n\x1b\x7f",
          .prompt_tokens = 3,
          .new_tokens = 5,
          .cropped_tokens = 2,
          .seconds = 3,
          .prefill_seconds = 1,
          .stop_reason = "end of text"};
}

TEST(Report, SpeedIsOfTheTokensAfterTheFirst) {
  EXPECT_EQ(tokens_per_second(result()), 2.0);  // four in two seconds
  GenerationResult short_one = result();
  short_one.new_tokens = 1;
  EXPECT_FALSE(tokens_per_second(short_one).has_value());
  short_one = {};
  EXPECT_FALSE(tokens_per_second(short_one).has_value());
}

TEST(Report, SaysOnceThatTheContextIsTooShortAndOfAConversationNothingElse) {
  test::CapturedLog log;
  GenerationReport brief(/*block_size=*/16, /*is_brief=*/true), whole(16, /*is_brief=*/false);
  brief(result(), 1), brief(result(), 2);
  whole(result(), 3), whole(result(), 4);
  const std::string text = log.text();
  const auto count = [&](const std::string& part) {
    int found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("The model sees 16 tokens at once (block_size): from there on"), 2) << text;
  EXPECT_EQ(count("Seed "), 2) << text;
}

TEST(Report, JsonHoldsEveryField) {
  const std::string line = json_line("a \"b\"", result(), 18446744073709551615u, /*ascii=*/false);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_NE(line.find("é"), std::string::npos);
  const auto object = nlohmann::json::parse(line);
  const nlohmann::json expected = {
      {"prompt", "a \"b\""},      {"text", result().text},        {"tokens", 5},
      {"prompt_tokens", 3},       {"cropped_tokens", 2},          {"seconds", 3.0},
      {"tokens_per_second", 2.0}, {"stop_reason", "end of text"}, {"seed", 18446744073709551615u}};
  EXPECT_EQ(object, expected);
}

TEST(Report, JsonWithoutPromptAndSpeed) {
  GenerationResult empty = result();
  empty.new_tokens = 0;
  const auto object = nlohmann::json::parse(json_line(std::nullopt, empty, 1, /*ascii=*/false));
  EXPECT_FALSE(object.contains("prompt"));
  EXPECT_TRUE(object.at("tokens_per_second").is_null());
}

TEST(Report, JsonForATerminalIsPlainAscii) {
  const std::string line = json_line("\u009b31m", result(), 1, /*ascii=*/true);
  for (const char c : line.substr(0, line.size() - 1)) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << line;
  EXPECT_EQ(nlohmann::json::parse(line).at("text"), result().text);
}

TEST(Report, JsonIsUtf8WhateverThePromptWas) {
  const auto object = nlohmann::json::parse(json_line("a\xFFz", result(), 1, /*ascii=*/false));
  EXPECT_EQ(object.at("prompt"), "a\uFFFDz");
}

}  // namespace
}  // namespace gpt::generate
