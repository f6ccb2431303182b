#include "gpt/chat/learned_conversation.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "chat/chat_tokenizer.h"
#include "gpt/chat/conversation_lines.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "support/expect_error.h"

namespace gpt::chat {
namespace {

using nlohmann::json;

std::string file_text(const std::string& path) {
  std::ifstream file(std::string(GPT_SOURCE_DIR) + "/tests/" + path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// What is not learned in brackets, and a bar behind the tokens that end an answer.
std::string shown(const LearnedConversation& conversation, const tokenizer::Tokenizer& tokenizer) {
  std::string text;
  bool is_learned = true;
  for (size_t i = 0; i < conversation.ids.size(); ++i) {
    if (conversation.learned[i] != is_learned) text += is_learned ? "[" : "]";
    is_learned = conversation.learned[i];
    text += tokenizer.piece(conversation.ids[i], false);
    if (conversation.ends[i]) text += "|";
  }
  return is_learned ? text : text + "]";
}

const std::vector<std::string> kTurnTokens = {"<|im_start|>", "<|im_end|>"};
const Dialogue kTwoAnswers = {{kSystem, "s"}, {kUser, "u"}, {kAssistant, "a"}, {kUser, "v"}, {kAssistant, "b"}};

class LearnedConversationTest : public testing::Test {
 protected:
  LearnedConversation learned(const Dialogue& dialogue, const std::string& source = kChatMl,
                              Learn learn = Learn::answers) const {
    return ConversationEncoder(ChatTemplate(source, {}, *tokenizer_), *tokenizer_, learn).encode(dialogue);
  }
  std::string show(const Dialogue& dialogue, const std::string& source = kChatMl, Learn learn = Learn::answers) const {
    return shown(learned(dialogue, source, learn), *tokenizer_);
  }

  std::unique_ptr<const tokenizer::Tokenizer> tokenizer_ = byte_tokenizer(kTurnTokens);
};

TEST_F(LearnedConversationTest, LearnsWhatTheAssistantSays) {
  EXPECT_EQ(show(kTwoAnswers),
            "[<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n]a<|im_end|>|["
            "\n<|im_start|>user\nv<|im_end|>\n<|im_start|>assistant\n]b<|im_end|>|[\n]");
  const LearnedConversation conversation = learned(kTwoAnswers);
  EXPECT_EQ(conversation.turns, 4);
  EXPECT_EQ(conversation.answers, 2);
  EXPECT_FALSE(conversation.last_answer_only);
}

TEST_F(LearnedConversationTest, LearnsTheLastAnswerOrEverything) {
  EXPECT_EQ(show(kTwoAnswers, kChatMl, Learn::last),
            "[<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"
            "<|im_start|>user\nv<|im_end|>\n<|im_start|>assistant\n]b<|im_end|>|[\n]");
  // Nothing is before the first token that would tell it.
  EXPECT_EQ(show({{kUser, "u"}, {kAssistant, "a"}, {kUser, "v"}}, kChatMl, Learn::all),
            "[<|im_start|>]user\nu<|im_end|>\n<|im_start|>assistant\na<|im_end|>|\n<|im_start|>user\nv<|im_end|>\n");
}

TEST_F(LearnedConversationTest, LeavesOutWhatHasNoAnswer) {
  for (const Learn learn : {Learn::answers, Learn::all, Learn::last}) {
    EXPECT_TRUE(learned({}, kChatMl, learn).ids.empty());
    EXPECT_TRUE(learned({{kSystem, "s"}, {kUser, "u"}}, kChatMl, learn).ids.empty());
    EXPECT_TRUE(learned({{kUser, "u"}, {kAssistant, " \n"}}, kChatMl, learn).ids.empty());
    EXPECT_TRUE(learned({{kAssistant, "a"}}, "{{ messages[0].content }}", learn).ids.empty());  // a single token
  }
  // What is said behind the last answer is not answered.
  EXPECT_EQ(show({{kUser, "u"}, {kAssistant, "a"}, {kUser, "v"}}), show({{kUser, "u"}, {kAssistant, "a"}}));
}

TEST_F(LearnedConversationTest, EncodesWordsAsTextWhateverTheyReadLike) {
  const Dialogue dialogue = {{kUser, "<|im_end|>"}, {kAssistant, "<|im_end|>\n<|im_start|>"}, {kUser, "v"}};
  const ChatTemplate chat(kChatMl, {}, *tokenizer_);
  Dialogue asked(dialogue.begin(), dialogue.end());
  std::vector<int32_t> expected = chat.encode(asked);
  const LearnedConversation all = learned(dialogue, kChatMl, Learn::all);
  expected.resize(all.ids.size());  // without what asks for an answer
  EXPECT_EQ(all.ids, expected);
  const LearnedConversation answers = learned(dialogue);
  EXPECT_EQ(std::count(answers.ends.begin(), answers.ends.end(), true), 1);
  EXPECT_EQ(std::count(answers.learned.begin(), answers.learned.end(), true), 10 + 1 + 12 + 1);
}

// A token that has some of an answer is learned, as transformers marks it, although it begins before it or reaches out of it.
TEST_F(LearnedConversationTest, TakesATokenAtAnEdgeByItsBeginning) {
  tokenizer_ = byte_tokenizer({}, {"xa", "by", "ab"});
  const std::string edges =
      "{% for m in messages %}{% if m.role == 'user' %}{{ m.content ~ 'x' }}{% else %}{% generation %}{{ m.content }}"
      "{% endgeneration %}y{% endif %}{% endfor %}";
  EXPECT_EQ(show({{kUser, "u"}, {kAssistant, "acb"}}, edges), "[u]xacby|");
  EXPECT_EQ(show({{kUser, "u"}, {kAssistant, "ca"}}, edges), "[ux]ca|[y]");
}

TEST_F(LearnedConversationTest, LearnsTheLastAnswerWhereTheTemplateRewritesEarlierOnes) {
  const std::string forgets =
      "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' }}{{ m.content if loop.last else m.content.split('>')[-1] }}"
      "{{ '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
  const Dialogue thinks = {{kUser, "u"}, {kAssistant, "hm>a"}, {kUser, "v"}, {kAssistant, "hm>b"}};
  EXPECT_EQ(show(thinks, forgets),
            "[<|im_start|>user\nu<|im_end|><|im_start|>assistant\na<|im_end|><|im_start|>user\nv<|im_end|>"
            "<|im_start|>assistant\n]hm>b<|im_end|>|");
  EXPECT_TRUE(learned(thinks, forgets).last_answer_only);
  EXPECT_EQ(learned(thinks, forgets).answers, 1);
  EXPECT_FALSE(learned(thinks, forgets, Learn::last).last_answer_only);
  EXPECT_FALSE(learned(kTwoAnswers, forgets).last_answer_only);
}

TEST_F(LearnedConversationTest, SaysWhatTheTemplateRefuses) {
  EXPECT_ERROR(show(kTwoAnswers, "{{ raise_exception('user first') }}"), ExitCode::data,
               "the chat template does not take this dialogue: user first");
  EXPECT_ERROR(show(kTwoAnswers, "{{ messages | length }}"), ExitCode::data,
               "the chat template changes the last answer");
}

TEST_F(LearnedConversationTest, DoesNotDependOnTheDay) {
  EXPECT_EQ(show({{kUser, "u"}, {kAssistant, "a"}},
                 "{{ strftime_now('%Y') }}{% for m in messages %}{{ m.content }}{% endfor %}"),
            "[2024u]a|");
}

// Some put a space before a text, or compose characters: what tokens spell is not the text then.
TEST(LearnedConversation, IsFoundWithTokenizersThatChangeTexts) {
  const std::string source =
      "{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' ~ m.content ~ ' [/INST]' }}{% else %}"
      "{{ ' ' ~ m.content ~ '.\n' }}{% endif %}{% endfor %}";
  const Dialogue dialogue = {{kUser, "cafe\u0301 the path"},
                             {kAssistant, "the other e\u0301 path"},
                             {kUser, "e\u0301"},
                             {kAssistant, "and  a path"}};
  for (const char* form : {"llama2", "llama2_legacy", "metaspace", "qwen2", "llama3", "gemma", "smollm"}) {
    SCOPED_TRACE(form);
    const auto tokenizer =
        tokenizer::tokenizer_from_json(file_text("tokenizer/hugging_face/" + std::string(form) + ".json"), form);
    const LearnedConversation conversation =
        ConversationEncoder(ChatTemplate(source, {}, *tokenizer), *tokenizer, Learn::answers).encode(dialogue);
    std::string learned, ends;
    for (size_t i = 0; i < conversation.ids.size(); ++i) {
      if (conversation.learned[i]) learned += tokenizer->piece(conversation.ids[i], false);
      if (conversation.ends[i]) ends += tokenizer->piece(conversation.ids[i], false);
    }
    for (const std::string accent : {"e\u0301", "e<unk>"})
      if (const size_t at = learned.find(accent); at != std::string::npos) learned.replace(at, accent.size(), "\u00e9");
    EXPECT_EQ(learned, " the other \u00e9 path.\n and  a path.\n");
    EXPECT_TRUE(ends == "\n\n" || ends == ".\n.\n") << ends;
    EXPECT_FALSE(conversation.last_answer_only);
  }
}

// Joins neighbours that are alike.
void add_part(std::vector<std::pair<std::string, bool>>& parts, const std::string& text, bool is_learned) {
  if (parts.empty() || parts.back().second != is_learned) parts.emplace_back("", is_learned);
  parts.back().first += text;
}

TEST(LearnedConversation, IsAsTheTemplatesOfFamiliesHaveIt) {
  const json cases = json::parse(file_text("chat/learned.json"));
  const auto specials = cases["specials"].get<std::vector<std::string>>();
  const auto tokenizer = byte_tokenizer(specials);
  tokenizer::TextFormat format;
  for (const tokenizer::SpecialToken& special : tokenizer->special_tokens()) {
    if (special.text == cases["begin"]) format.begin = special.id;
    if (special.text == cases["end"]) format.ends = {special.id}, format.tokenizer_end = special.id;
  }
  int64_t compared = 0;
  for (const auto& [name, outcomes] : cases["templates"].items()) {
    const std::string source = file_text("jinja/templates/" + name + ".jinja");
    const ConversationEncoder encoder(ChatTemplate(source, format, *tokenizer), *tokenizer, Learn::answers);
    for (size_t i = 0; i < outcomes.size(); ++i) {
      const json& expected = outcomes[i];
      const Dialogue dialogue = read_conversation({{"messages", cases["dialogues"][i]}}, ConversationShape::messages);
      SCOPED_TRACE(name + " " + cases["dialogues"][i].dump());
      if (expected == "refused") {
        EXPECT_THROW(encoder.encode(dialogue), jinja::TemplateError);
        continue;
      }
      const LearnedConversation conversation = encoder.encode(dialogue);
      EXPECT_EQ(conversation.ids.empty(), expected.is_null());
      if (expected.is_null()) continue;
      std::vector<std::pair<std::string, bool>> parts, expected_parts;
      for (size_t t = 0; t < conversation.ids.size(); ++t)
        add_part(parts, tokenizer->piece(conversation.ids[t], false), conversation.learned[t]);
      for (const json& part : expected["parts"]) add_part(expected_parts, part[0], part[1]);
      EXPECT_EQ(parts, expected_parts);
      EXPECT_EQ(conversation.last_answer_only, expected["last_only"]);
      ++compared;
    }
  }
  EXPECT_GT(compared, 90);
}

}  // namespace
}  // namespace gpt::chat
