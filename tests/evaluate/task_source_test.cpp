#include "gpt/evaluate/task_source.h"

#include <gtest/gtest.h>

#include <string>

#include "core/scratch_folder.h"
#include "evaluate/fixture_model.h"
#include "evaluate/prompts.h"
#include "gpt/evaluate/text_source.h"
#include "support/expect_error.h"

namespace gpt::evaluate {
namespace {

using nlohmann::json;

Question question(TaskKind kind, const json& line) { return question_of(kind, Fields(line, "here")); }

TEST(Prompts, HellaSwagIsCleanedOfItsMarkup) {
  const Question parts = question(TaskKind::hellaswag, {{"activity_label", "Removing ice"},
                                                        {"ctx_a", "A man [step] sits.  He"},
                                                        {"ctx_b", "then LIFTS"},
                                                        {"endings", {" it [title] up. ", "[substeps] down"}},
                                                        {"label", "1"}});
  EXPECT_EQ(parts.context, "Removing ice: A man sits. He Then lifts");
  EXPECT_EQ(parts.answers, (std::vector<std::string>{"it. up.", " down"}));
  EXPECT_EQ(parts.label, 1);
  const Question whole =
      question(TaskKind::hellaswag, {{"activity_label", "X"}, {"ctx", "a B"}, {"endings", {"c"}}, {"label", 0}});
  EXPECT_EQ(whole.context, "X: a B");
  EXPECT_EQ(question(TaskKind::hellaswag,
                     {{"activity_label", "a [b\nc] d]"}, {"ctx", ""}, {"endings", {"[x][y] z ["}}, {"label", 0}})
                .context,
            "a [b\nc] d]:")
      << "brackets are within a line";
}

TEST(Prompts, ArcComesInTwoForms) {
  const Question flat =
      question(TaskKind::arc,
               {{"question", "Why?"}, {"choices", {{"text", {"a", "b"}}, {"label", {"1", "2"}}}}, {"answerKey", "2"}});
  const Question nested =
      question(TaskKind::arc,
               {{"question",
                 {{"stem", "Why?"}, {"choices", {{{"text", "a"}, {"label", "1"}}, {{"text", "b"}, {"label", "2"}}}}}},
                {"answerKey", "2"}});
  for (const Question& arc : {flat, nested}) {
    EXPECT_EQ(arc.context, "Question: Why?\nAnswer:");
    EXPECT_EQ(arc.answers, (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(arc.label, 1);
  }
}

TEST(Prompts, TheEndingBeginsAtTheLastSpace) {
  EXPECT_EQ(cloze_of("one two  three").context, "one two ");
  EXPECT_EQ(cloze_of("one two  three").ending, " three");
  EXPECT_EQ(cloze_of("one two\nthree").ending, " two\nthree");
  EXPECT_EQ(cloze_of("one").context, "");
  EXPECT_EQ(cloze_of("one").ending, " one");
  EXPECT_EQ(cloze_of("one ").ending, " ");
}

class TasksTest : public testing::Test {
 protected:
  // Everything that a file of one task has.
  std::vector<Example> read(const std::string& name, const std::string& lines, int64_t window = 32) {
    const std::string path = folder_.file(name + ".jsonl", lines);
    const auto source = open_task(parse_task(name + ":" + path), Encoding(*tokenizer_, window), window);
    std::vector<Example> examples;
    while (auto example = source->next()) examples.push_back(std::move(*example));
    return examples;
  }
  std::vector<Example> read_text(const std::string& name, const std::string& text, const Encoding& encoding) {
    const auto source = open_text({folder_.file(name, text)}, "text", encoding, encoding.window);
    std::vector<Example> examples;
    while (auto example = source->next()) examples.push_back(std::move(*example));
    return examples;
  }

  const ScratchFolder folder_;
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer_ = std::move(test::FixtureModel().tokenizer);
};

constexpr const char* kPiqa = R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 0})";

TEST_F(TasksTest, FaultsSayWhereTheyAre) {
  const auto refused = [&](const std::string& name, const std::string& lines, const std::string& part) {
    EXPECT_ERROR(read(name, lines), ExitCode::data, part);
  };
  refused("piqa", "", "piqa.jsonl: it is empty");
  refused("piqa", "\n \n", "piqa.jsonl: it is empty");
  refused("piqa", std::string(kPiqa) + "\n\n{\"goal\": \n", "piqa.jsonl: line 3: it is not JSON");
  refused("piqa", "{\"label\": " + std::string(100000, '['), "piqa.jsonl: line 1: it is nested too deep");
  refused("piqa", "[1]", "piqa.jsonl: line 1: it is no JSON object");
  refused("piqa", R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 2})",
          "line 1: label is 2; there are 2 answers, which are numbered from 0");
  refused("piqa", R"({"goal": "g", "sol1": "a", "sol2": "b", "label": "-1"})", R"(label is "-1")");
  refused("piqa", R"({"goal": "g", "sol1": "a", "sol2": "b"})", "label is missing");
  refused("piqa", R"({"goal": 7, "sol1": "a", "sol2": "b", "label": 0})", "goal is 7; a text is needed");
  refused("hellaswag", R"({"activity_label": "x", "ctx": "y", "endings": [], "label": ""})", "endings is []");
  refused("hellaswag", R"({"activity_label": "x", "ctx": "y", "endings": ["a"], "label": ""})", R"(label is "")");
  refused("arc", R"({"question": "q", "choices": {"text": ["a"], "label": ["A"]}, "answerKey": "B"})",
          R"(answerKey is "B"; none of the choices has this label)");
  refused("arc", R"({"question": "q", "choices": {"text": ["a", "b"], "label": ["A"]}, "answerKey": "A"})",
          R"(line 1: choices: label is ["A"]; one is needed for each text)");
  std::string answer;
  for (int i = 0; i < 60; ++i) answer += "xyz ";
  refused("piqa", R"({"goal": "g", "sol1": "a", "sol2": ")" + answer + R"(", "label": 0})",
          "tokens long, and the window has 32");
  EXPECT_ERROR(parse_task("squad:file"), ExitCode::config,
               "--tasks squad:file: write NAME:FILE, where NAME is one of hellaswag, ");
  EXPECT_ERROR(parse_task("arc:"), ExitCode::config, "NAME:FILE");
  EXPECT_ERROR(open_task(parse_task("arc:" + (folder_ / "none")), Encoding(*tokenizer_, 8), 8), ExitCode::data, "none");
}

TEST_F(TasksTest, ACharacterThatTheTokenizerLacksIsNamed) {
  const auto letters = tokenizer::make_tokenizer("char", "Question:\nAnswr g ab");
  const auto source =
      open_task(parse_task("piqa:" + folder_.file("p.jsonl", R"({"goal": "g", "sol1": "a", "sol2": "é", "label": 0})")),
                Encoding(*letters, 32), 32);
  EXPECT_ERROR(source->next(), ExitCode::data, "p.jsonl: line 1: the answer 'é'");
}

TEST_F(TasksTest, ATextIsWhatItsFilesHold) {
  const Encoding encoding(*tokenizer_, 8);
  const std::string text = "The fox walks around the fence.\r\nIt sings a song until the evening.\n";
  const std::vector<Example> plain = read_text("a.txt", text, encoding);
  int64_t scored = 0;
  for (const Example& example : plain) scored += example.requests[0].scored;
  EXPECT_EQ(plain.back().document, 0);
  const std::string read = "The fox walks around the fence.\nIt sings a song until the evening.\n";
  EXPECT_EQ(scored, std::ssize(tokenizer_->encode(read)));
  EXPECT_EQ(plain.back().bytes, std::ssize(read));
  EXPECT_EQ(plain.back().words, 14);
  for (size_t i = 0; i + 1 < plain.size(); ++i) EXPECT_EQ(plain[i].bytes, 0);
  const std::vector<Example> lines =
      read_text("b.jsonl", "{\"text\": \"one\"}\n{\"text\": \"\"}\n{\"text\": \"two three\"}\n", encoding);
  EXPECT_EQ(lines.back().document, 1);
  EXPECT_EQ(lines.back().words, 2);
  EXPECT_ERROR(read_text("empty.txt", "", encoding), ExitCode::data, "empty.txt: it is empty");
  EXPECT_ERROR(read_text("blank.jsonl", "\n\n", encoding), ExitCode::data, "blank.jsonl: there is no text in it");
}

TEST_F(TasksTest, WithoutAPrefixTheFirstTokenIsOnlyContext) {
  const auto bytes = tokenizer::make_tokenizer("byte", {});
  const std::vector<Example> examples = read_text("a.txt", "abcdefghij", Encoding(*bytes, 4));
  int64_t scored = 0;
  for (const Example& example : examples) scored += example.requests[0].scored;
  EXPECT_EQ(scored, 9);
  EXPECT_EQ(examples.back().bytes, 9);
}

// Its pieces are cut where the tokenizer allows it, and nothing shows that they were.
TEST_F(TasksTest, ALongDocumentIsOneText) {
  std::string text;
  while (text.size() < 3'000'000)
    text += "The naïve fox walks around Москва, and " + std::to_string(text.size()) + " dogs sing.\n";
  const std::vector<Example> examples = read_text("long.txt", text, Encoding(*tokenizer_, 64));
  std::vector<int32_t> ids;
  for (const Example& example : examples) {
    const Request& request = example.requests[0];
    ids.insert(ids.end(), request.ids.end() - request.scored, request.ids.end());
  }
  EXPECT_EQ(ids, tokenizer_->encode(text));
  EXPECT_EQ(examples.back().bytes, std::ssize(text));
  EXPECT_EQ(examples.back().document, 0);
}

}  // namespace
}  // namespace gpt::evaluate
