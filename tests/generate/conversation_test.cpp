#include "gpt/generate/conversation.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "generate/tiny_text_model.h"
#include "gpt/generate/generator.h"
#include "support/device_cases.h"
#include "support/expect_error.h"

namespace gpt::generate {
namespace {

using namespace test;

// Messages one after the other, so that the prompt of generate() can be the same.
constexpr const char* kJoined = "{% for message in messages %}{{ message.content }}{% endfor %}";

class ConversationTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    session_.loaded.tokenizer = characters();
    session_.loaded.model = tiny_model(device(), session_.loaded.tokenizer->vocab_size());
    sampling_.max_new_tokens = 3, sampling_.seed = 5;
  }
  Conversation conversation() { return {session_, {kJoined, {}, *session_.loaded.tokenizer}, sampling_}; }
  std::string continued(const std::string& prompt, uint64_t seed) {
    SamplingConfig sampling = sampling_;
    sampling.seed = seed;
    return generate(*session_.loaded.model, *session_.loaded.tokenizer, prompt, sampling, at::kFloat).text;
  }

  Session session_;
  SamplingConfig sampling_;
};

TEST_P(ConversationTest, AnswersWhatGenerationWritesBehindTheWholeDialogue) {
  Conversation talk = conversation();
  talk.set_system("s");
  std::string said = "s";
  uint64_t seed = 5;
  for (const char* words : {"ab", "c", "def"}) {
    said += words;
    const GenerationResult answer = talk.answer(words);
    EXPECT_EQ(answer.prompt_tokens, std::ssize(said));
    EXPECT_EQ(answer.text, continued(said, seed++)) << said;
    EXPECT_EQ(talk.dialogue().back().content, answer.text);
    EXPECT_EQ(talk.dialogue().back().ids, session_.loaded.tokenizer->encode(answer.text));
    said += answer.text;
  }
  talk.reset();
  EXPECT_EQ(talk.dialogue(), (chat::Dialogue{{chat::kSystem, "s"}}));
  EXPECT_EQ(talk.answer("ab").text, continued("sab", seed));
}

TEST_P(ConversationTest, DropsTheOldestTurnsWhereTheContextWouldHaveNoRoomForAnAnswer) {
  Conversation talk = conversation();
  talk.set_system("s");
  ASSERT_EQ(kBlockSize, 16);
  talk.answer("abcd"), talk.answer("ef");  // 13 characters
  EXPECT_EQ(talk.dropped_turns(), 0);
  const std::string kept = "ef" + talk.dialogue().back().content;
  EXPECT_EQ(talk.answer("g").text, continued("s" + kept + "g", 7));
  EXPECT_EQ(talk.dropped_turns(), 1);
  EXPECT_EQ(talk.dialogue().size(), 5);
  const chat::Dialogue before = talk.dialogue();
  EXPECT_ERROR(talk.answer("abcdefghijklmnop"), ExitCode::data, "shorten it");
  EXPECT_EQ(talk.dialogue(), before);
}

TEST_P(ConversationTest, EndsAnAnswerAtTheEndOfTheContext) {
  sampling_.max_new_tokens = 1000;
  const GenerationResult answer = conversation().answer("abcdefghij");
  EXPECT_EQ(answer.new_tokens, 6);
  EXPECT_EQ(answer.stop_reason, "length");
  EXPECT_TRUE(answer.fills_context);
  sampling_.max_new_tokens = 2;
  EXPECT_FALSE(conversation().answer("a").fills_context);
}

TEST_P(ConversationTest, KeepsWhatWasWrittenBeforeItWasStopped) {
  Conversation talk = conversation();
  const GenerationResult answer = talk.answer("ab", [](std::string_view) { return false; });
  EXPECT_EQ(answer.stop_reason, "interrupted");
  EXPECT_EQ(answer.new_tokens, 1);
  EXPECT_EQ(answer.text, continued("ab", 5).substr(0, 1));
  EXPECT_EQ(talk.answer("c").text, continued("ab" + answer.text + "c", 6));
}

INSTANTIATE_ON_DEVICES(ConversationTest);

}  // namespace
}  // namespace gpt::generate
