#include "gpt/serve/chat_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "gpt/serve/api_error.h"

namespace gpt::serve {
namespace {

ChatRequest parse_chat(const std::string& fields, bool strict_fields = false) {
  return parse_chat_request(R"({"messages": [{"role": "user", "content": "hi"}])" + fields + "}",
                            {.models = {"mine", "its adapter"}, .most_tokens = 1000, .strict_fields = strict_fields});
}

// "PARAM: MESSAGE" of what it is refused with; empty where it is not.
std::string chat_refused(const std::string& fields, bool strict_fields = false) {
  try {
    parse_chat(fields, strict_fields);
  } catch (const ApiError& error) {
    const auto body = nlohmann::json::parse(error.json())["error"];
    return body["param"].dump() + ": " + body["message"].get<std::string>();
  }
  return "";
}

TEST(ChatRequest, ReadsMessages) {
  const ChatRequest request = parse_chat_request(
      R"({"messages": [{"role": "developer", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                       {"role": "assistant", "content": "c", "refusal": null, "tool_calls": []}]})",
      {.models = {"mine", "its adapter"}, .most_tokens = 1000});
  EXPECT_EQ(request.dialogue, (chat::Dialogue{{chat::kSystem, "s"}, {chat::kUser, "ab"}, {chat::kAssistant, "c"}}));
  EXPECT_TRUE(request.left_out.empty());
}

TEST(ChatRequest, TakesEitherNameOfTheMostTokens) {
  EXPECT_EQ(parse_chat("").sampling.max_new_tokens, 1000);
  EXPECT_EQ(parse_chat(R"(, "max_tokens": 5)").sampling.max_new_tokens, 5);
  EXPECT_EQ(parse_chat(R"(, "max_completion_tokens": 6)").sampling.max_new_tokens, 6);
  EXPECT_EQ(parse_chat(R"(, "max_tokens": 5, "max_completion_tokens": 6)").sampling.max_new_tokens, 6);
}

TEST(ChatRequest, HasLogprobsOfChats) {
  EXPECT_EQ(parse_chat("").logprobs, std::nullopt);
  EXPECT_EQ(parse_chat(R"(, "logprobs": true)").logprobs, 0);
  EXPECT_EQ(parse_chat(R"(, "logprobs": true, "top_logprobs": 4)").logprobs, 4);
  EXPECT_EQ(parse_chat(R"(, "logprobs": false)").logprobs, std::nullopt);
  EXPECT_EQ(chat_refused(R"(, "top_logprobs": 4)"), "\"top_logprobs\": top_logprobs needs logprobs: true");
}

TEST(ChatRequest, RefusesWhatWouldChangeTheAnswer) {
  EXPECT_EQ(
      chat_refused(
          R"(, "tools": [], "tool_choice": "none", "modalities": ["text"], "n": 2, "echo": false, "reasoning_effort": null)"),
      "");
  for (const char* field : {R"("tools": [1])", R"("tool_choice": "required")", R"("reasoning_effort": "low")",
                            R"("frequency_penalty": 1)", R"("chat_template_kwargs": {"a": 1})",
                            R"("continue_final_message": true)", R"("response_format": {"type": "json_object"})"}) {
    const std::string message = chat_refused(std::string(", ") + field);
    EXPECT_NE(message.find("is not supported"), std::string::npos) << field << " " << message;
  }
}

TEST(ChatRequest, LeavesOutToolsWhereThatIsWanted) {
  // As deep as Open WebUI's, of a parameter that is a list or null.
  const std::string tools =
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties":
          {"a": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}}}}}])";
  const auto parse_ignoring = [&](const std::string& choice) {
    return parse_chat_request(
        R"({"messages": [{"role": "user", "content": "hi"}], "tool_choice": )" + choice + R"(, "tools": )" + tools +
            "}",
        {.models = {"mine", "its adapter"}, .most_tokens = 1000, .strict_fields = true, .ignore_tools = true});
  };
  EXPECT_EQ(
      chat_refused(R"(, "tools": )" + tools),
      "\"tools\": tools is not supported: leave it out, or send []; gpt-serve --ignore-tools answers without them");
  for (const char* choice : {R"("auto")", R"("none")", "null"}) {
    const ChatRequest request = parse_ignoring(choice);
    ASSERT_EQ(request.left_out.size(), 1);
    EXPECT_EQ(request.left_out[0].field, "tools");
    EXPECT_TRUE(request.left_out[0].is_known);
  }
  EXPECT_THROW(parse_ignoring(R"("required")"), ApiError);
  EXPECT_THROW(parse_ignoring(R"({"type": "function", "function": {"name": "f"}})"), ApiError);
}

TEST(ChatRequest, LeavesOutWhatNobodyKnows) {
  const ChatRequest request = parse_chat(R"(, "novel": 1, "cache_prompt": true)");
  ASSERT_EQ(request.left_out.size(), 2);
  EXPECT_EQ(request.left_out[0].field + request.left_out[1].field, "cache_promptnovel");
  EXPECT_NE(chat_refused(R"(, "novel": 1)", /*strict_fields=*/true), "");
}

}  // namespace
}  // namespace gpt::serve
