// JSON as other programs write it.
#include "src/prepare/json_lines.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "support/expect_error.h"

namespace gpt::prepare {
namespace {

JsonDocuments parsed(const std::string& lines) { return parse_json_lines(lines, "text", {}, "a.jsonl"); }

// json.dumps({"text": ..., "x": float("nan")})
TEST(JsonLines, ReadsThePythonNumbersThatJsonDoesNotHave) {
  EXPECT_EQ(parsed(R"({"x": NaN, "text": "NaN \"Infinity", "y": [Infinity, -Infinity]})").chunk.text, "NaN \"Infinity");
  EXPECT_EQ(parsed(R"({"x": NaN, "text": "a"})").replaced_characters, 0);
  EXPECT_ERROR(parsed(R"({"x": nan, "text": "a"})"), ExitCode::data, "a.jsonl: line 0: byte 8: it is not valid JSON");
  EXPECT_ERROR(parsed(R"({"x": NaN, "text": "a")"), ExitCode::data, "it is not valid JSON");
}

TEST(JsonLines, ReadsNumbersOfAnySize) {
  const std::string digits(400, '9');
  EXPECT_EQ(parsed("{\"id\": " + digits + ", \"x\": [-1e999, 1E-999], \"text\": \"a\"}").chunk.text, "a");
  EXPECT_TRUE(is_json("{\"id\": -" + digits + ".5}"));
  for (const char* wrong : {"01", "1.", ".5", "1e", "--1", "1e999x", "1e999 2", "0x1F"})
    EXPECT_FALSE(is_json(std::string("{\"id\": ") + wrong + "}")) << wrong;
  EXPECT_ERROR(parsed("{\"text\": 1" + digits + "}"), ExitCode::data, "'text' is a number; a string is needed");
}

TEST(JsonLines, SaysWhoLearnsFromConversations) {
  for (const auto& [line, says] :
       {std::pair{R"({"messages": [{"role": "user", "content": "hi"}]})", "('messages')"},
        {R"({"id": 1, "conversations": [{"from": "human", "value": "hi"}]})", "('conversations')"},
        {R"({"instruction": "a", "input": "", "output": "b"})", "('instruction')"}}) {
    EXPECT_ERROR(parsed(line), ExitCode::data, "there is no field 'text'; the line is a conversation");
    EXPECT_ERROR(parsed(line), ExitCode::data, says);
    EXPECT_ERROR(parsed(line), ExitCode::data, "gpt-train --init_from MODEL --data FILE");
  }
  EXPECT_ERROR(parse_json_lines(R"({"messages": []})", "messages", {}, "a.jsonl"), ExitCode::data,
               "'messages' is a list; a string is needed; the line is a conversation");
  EXPECT_ERROR(parsed(R"({"output": "a"})"), ExitCode::data, "--text-field names the one with the text");
}

// json.dumps("\ud83d"): Python's strings may hold half of a pair, which UTF-8 does not have.
TEST(JsonLines, LoneSurrogatesBecomeReplacementCharacters) {
  const JsonDocuments found = parsed(R"({"text": "a\ud83d b\ude00\ud83d\ude00\\ud83d \u00e9"})");
  EXPECT_EQ(found.chunk.text, "a\uFFFD b\uFFFD\U0001F600\\ud83d \u00e9");
  EXPECT_EQ(found.replaced_characters, 2);
  EXPECT_EQ(parsed(R"({"text": "\ud83d\ud83d\ude00"})").chunk.text, "\uFFFD\U0001F600");
  EXPECT_EQ(parsed(R"({"text": "\ud83d\u0041"})").chunk.text,
            "\uFFFD"
            "A");
}

TEST(JsonLines, BytesThatAreNoUtf8BecomeReplacementCharacters) {
  const JsonDocuments found = parsed("{\"text\": \"caf\xE9 \xED\xA0\xBD\"}");
  EXPECT_TRUE(found.chunk.text.starts_with("caf\uFFFD "));
  EXPECT_GE(found.replaced_characters, 2);
}

TEST(JsonLines, KeepsWhatIsUnusualButRight) {
  EXPECT_EQ(parsed("\xEF\xBB\xBF{\"text\": \"a\\u0000b\\/\"}").chunk.text, std::string("a\0b/", 4));
  EXPECT_EQ(parsed(R"({"id": 123456789012345678901234567890, "text": "a", "text": "b"})").chunk.text,
            "b");                                                                  // as Python's
  EXPECT_EQ(parsed("{\"text\": null}\n{\"text\": \"a\"}").chunk.parts.size(), 1);  // pandas, for what is missing
}

TEST(JsonLines, NamesTheLine) {
  try {
    parsed("{\"text\": \"a\"}\n\n{\"texts\": 1}\n");
    FAIL();
  } catch (const BadJsonLine& error) { EXPECT_EQ(error.line(), 2); }
}

}  // namespace
}  // namespace gpt::prepare
