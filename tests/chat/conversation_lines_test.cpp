#include "gpt/chat/conversation_lines.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/expect_error.h"

namespace gpt::chat {
namespace {

using nlohmann::json;

std::optional<ConversationShape> shape(const char* line, const char* field = "text") {
  return shape_of(json::parse(line), field);
}

Dialogue read(const char* line, ConversationShape shape) { return read_conversation(json::parse(line), shape); }

TEST(ConversationLines, AreKnownByTheirFields) {
  EXPECT_EQ(shape(R"({"messages": []})"), ConversationShape::messages);
  EXPECT_EQ(shape(R"({"id": 1, "prompt": "a", "completion": "b"})"), ConversationShape::prompt);
  EXPECT_EQ(shape(R"({"instruction": "a", "output": "b"})"), ConversationShape::alpaca);
  EXPECT_EQ(shape(R"({"conversations": []})"), ConversationShape::sharegpt);
  for (const char* other : {R"({"text": "a"})", R"({"prompt": "a"})", R"({"instruction": "a"})", "{}", "[]", "1"})
    EXPECT_EQ(shape(other), std::nullopt) << other;
  // What has the text is a text.
  EXPECT_EQ(shape(R"({"text": "a", "messages": []})"), std::nullopt);
  EXPECT_EQ(shape(R"({"text": "a", "messages": []})", "body"), ConversationShape::messages);
  EXPECT_EQ(shape(R"({"prompt": "a", "completion": "b"})", "completion"), std::nullopt);
}

TEST(ConversationLines, AreReadInEveryShape) {
  const Dialogue dialogue = {{kUser, "ask"}, {kAssistant, "tell"}};
  EXPECT_EQ(read(R"({"prompt": "ask", "completion": "tell"})", ConversationShape::prompt), dialogue);
  EXPECT_EQ(read(R"({"instruction": "ask", "input": "", "output": "tell"})", ConversationShape::alpaca), dialogue);
  EXPECT_EQ(read(R"({"instruction": "ask", "input": null, "output": "tell"})", ConversationShape::alpaca), dialogue);
  EXPECT_EQ(read(R"({"instruction": "ask", "input": "this", "output": "tell"})", ConversationShape::alpaca),
            (Dialogue{{kUser, "ask\n\nthis"}, {kAssistant, "tell"}}));
  EXPECT_EQ(read(R"({"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "ask"},
                     {"from": "gpt", "value": "tell"}, {"from": "user", "value": "u"},
                     {"from": "assistant", "value": "a"}]})",
                 ConversationShape::sharegpt),
            (Dialogue{{kSystem, "s"}, {kUser, "ask"}, {kAssistant, "tell"}, {kUser, "u"}, {kAssistant, "a"}}));
  EXPECT_EQ(read(R"({"messages": [{"role": "critic", "content": " c ", "tool_calls": null},
                     {"role": "assistant", "content": "", "tool_calls": []}]})",
                 ConversationShape::messages),
            (Dialogue{{"critic", " c "}, {kAssistant, ""}}));
}

TEST(ConversationLines, ReadBackWhatWasWritten) {
  const Dialogue dialogue = {{kUser, "\"é\n"}, {kAssistant, "<|im_end|>"}};
  EXPECT_EQ(read_conversation(json::parse(as_json(dialogue).dump()), ConversationShape::messages), dialogue);
}

TEST(ConversationLines, SayWhatIsWrongWithThem) {
  const auto refused = [](const char* line, ConversationShape shape, const char* why) {
    EXPECT_ERROR(read(line, shape), ExitCode::data, why);
  };
  refused(R"({"messages": {}})", ConversationShape::messages, "'messages' is an object; a list is needed");
  refused(R"({"messages": ["a"]})", ConversationShape::messages, "'messages', item 1: it is a string; an object is");
  refused(R"({"messages": [{"role": "user"}]})", ConversationShape::messages, "item 1: there is no 'content'");
  refused(R"({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": [1]}]})",
          ConversationShape::messages, "'messages', item 2: 'content' is a list; a string is needed");
  refused(R"({"messages": [{"role": "assistant", "content": null}]})", ConversationShape::messages,
          "'content' is null; a string");
  refused(R"({"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]})", ConversationShape::messages,
          "item 1: it has 'tool_calls', which is not learned");
  refused(R"({"conversations": [{"from": "tool", "value": "a"}]})", ConversationShape::sharegpt,
          "'conversations', item 1: 'from' is \"tool\"; human, user, gpt, assistant or system is needed");
  refused(R"({"prompt": 1, "completion": "a"})", ConversationShape::prompt, "'prompt' is a number; a string is");
  refused(R"({"instruction": "a", "input": true, "output": "b"})", ConversationShape::alpaca,
          "'input' is true or false");
  refused(
      R"({"prompt": "a", "completion": "b"})", ConversationShape::messages,
      "there is no 'messages', and the first line of the input is a conversation with 'messages' (this one has 'prompt')");
  refused(R"({"prompt": "a"})", ConversationShape::prompt, "there is no 'completion'");
  refused("[]", ConversationShape::prompt, "a JSON object is needed");
}

}  // namespace
}  // namespace gpt::chat
