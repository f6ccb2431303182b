// From files of conversations to tokens with marks: what load_corpus() does with them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "chat/chat_tokenizer.h"
#include "gpt/chat/chat_layout.h"
#include "gpt/chat/chat_template.h"
#include "gpt/core/file.h"
#include "gpt/data/bin.h"
#include "gpt/prepare/prepare.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "prepare/corpus_fixture.h"
#include "support/captured_log.h"
#include "support/expect_error.h"

namespace gpt::prepare {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHello =
    R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]})";
constexpr const char* kHelloShown = "[<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n]a<|im_end|>|[\n]";

std::string line(const std::string& asked, const std::string& answer) {
  return nlohmann::json{{"prompt", asked}, {"completion", answer}}.dump() + "\n";
}

std::string numbered_lines(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) lines += line("q" + std::to_string(i), std::string(1 + i % 7, 'a'));
  return lines;
}

class ConversationsTest : public CorpusTest {
 protected:
  data::Corpus load(const DataConfig& config, const std::optional<tokenizer::TextFormat>& format = {}) const {
    return load_corpus(config, /*block_size=*/4096, tokenizer_->to_json(), {}, format);
  }
  data::Corpus load_lines(const std::string& lines) const { return load(text(file("chats.jsonl", lines))); }

  // Each conversation, what is not learned of it in brackets and a bar behind the ends of answers.
  std::vector<std::string> shown(const data::Tokens& tokens) const {
    std::vector<std::string> all;
    bool is_learned = true;
    const auto close = [&] {
      if (!is_learned) all.back() += "]";
      is_learned = true;
    };
    for (int64_t i = 0; i < tokens.size(); ++i) {
      if ((tokens.mark(i) & data::TokenMark::kBegins) != 0) {
        if (!all.empty()) close();
        all.emplace_back();
      }
      if (tokens.is_learned(i) != is_learned) all.at(all.size() - 1) += is_learned ? "[" : "]";
      is_learned = tokens.is_learned(i);
      all.back() += tokenizer_->piece(tokens[i], false);
      if ((tokens.mark(i) & data::TokenMark::kEnds) != 0) all.back() += "|";
    }
    if (!all.empty()) close();
    return all;
  }
  data::Metadata metadata() const {
    for (const auto& entry : fs::directory_iterator(folder_ / "cache"))
      if (entry.is_directory()) return data::read_metadata(entry.path() / data::kMetadataFile);
    return {};
  }
  int64_t entries() const {
    const auto all = fs::directory_iterator(folder_ / "cache");
    return std::count_if(begin(all), end(all), [](const auto& entry) { return entry.is_directory(); });
  }

  std::unique_ptr<const tokenizer::Tokenizer> tokenizer_ = chat::byte_tokenizer({"<|im_start|>", "<|im_end|>"});
};

TEST_F(ConversationsTest, BecomeTokensWithMarks) {
  const data::Corpus corpus = load_lines(std::string("\n") + kHello + "\n" + kHello + "\n");
  EXPECT_TRUE(corpus.has_conversations);
  EXPECT_EQ(shown(corpus.train), std::vector<std::string>{kHelloShown});
  EXPECT_EQ(shown(corpus.validation), std::vector<std::string>{kHelloShown});
  EXPECT_EQ(corpus.validation_bytes, 1);  // "a": special tokens have none
  EXPECT_EQ(data::text_bytes(corpus, corpus.validation), 1);
  ASSERT_TRUE(corpus.text_format);
  EXPECT_EQ(corpus.text_format->chat_template, chat::kChatMl);
}

TEST_F(ConversationsTest, AreKnownInEveryShape) {
  for (const char* other :
       {R"({"prompt": "u", "completion": "a"})", R"({"instruction": "u", "input": "", "output": "a"})",
        R"({"conversations": [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}]})"})
    EXPECT_EQ(shown(load_lines(other).train), std::vector<std::string>{kHelloShown}) << other;
}

TEST_F(ConversationsTest, AreTextsWhereTheFieldOfTheTextIs) {
  const std::string lines = R"({"text": "plain text", "messages": []})"
                            "\n";
  const data::Corpus corpus = load_corpus(text(file("a.jsonl", lines)), 1, tokenizer_->to_json());
  EXPECT_FALSE(corpus.has_conversations);
  EXPECT_FALSE(corpus.train.has_marks());
  EXPECT_EQ(corpus.text_format, std::nullopt);
}

TEST_F(ConversationsTest, AreAllOfOneShape) {
  EXPECT_ERROR(load_lines(std::string(kHello) + "\n\n" + line("u", "a")), ExitCode::data,
               "chats.jsonl: line 3: there is no 'messages', and the first line of the input is a conversation");
  EXPECT_ERROR(load_lines(std::string(kHello) + "\n{\"text\": \"a\"}"), ExitCode::data,
               "chats.jsonl: line 2: there is no 'messages'");
  EXPECT_ERROR(load_lines(std::string(kHello) + "\n{\"messages\""), ExitCode::data, "chats.jsonl: line 2: byte 12: ");
  EXPECT_ERROR(load_lines(std::string("{\"text\": \"a\"}\n") + kHello), ExitCode::data,
               "chats.jsonl: line 2: there is no field 'text'; the line is a conversation ('messages'), and gpt-train");
  EXPECT_ERROR(load_lines(R"({"messages": [{"role": "user", "content": [1]}]})"), ExitCode::data,
               "chats.jsonl: line 1: 'messages', item 1: 'content' is a list");
}

TEST_F(ConversationsTest, PassOverWhatIsNoneInAFolder) {
  file("in/README.txt", "what this is");
  file("in/a.jsonl", kHello);
  file("in/b.jsonl", R"({"text": "a"})");
  test::CapturedLog captured;
  EXPECT_EQ(shown(load(text(folder_ / "in")).train), std::vector<std::string>{kHelloShown});
  const std::string said = captured.text();
  EXPECT_NE(said.find("README.txt: it holds text, and the input is conversations in JSON lines ('messages')"),
            std::string::npos)
      << said;
}

TEST_F(ConversationsTest, AreSplitBetweenEachOther) {
  EXPECT_EQ(load_lines(line("u", "a")).validation.size(), 0);
  for (const int count : {2, 3, 99, 100, 500}) {
    const data::Corpus corpus = load_lines(numbered_lines(count));
    const std::vector<std::string> train = shown(corpus.train), validation = shown(corpus.validation);
    EXPECT_EQ(static_cast<int>(train.size() + validation.size()), count);
    EXPECT_GE(validation.size(), 1u);
    std::set<std::string> all(train.begin(), train.end());
    all.insert(validation.begin(), validation.end());
    EXPECT_EQ(static_cast<int>(all.size()), count);
    for (const std::string& conversation : all) {
      EXPECT_TRUE(conversation.starts_with("[<|im_start|>user\nq")) << conversation;
      EXPECT_TRUE(conversation.ends_with("a<|im_end|>|[\n]")) << conversation;
    }
    EXPECT_LE(static_cast<int>(validation.size()), std::max(1, count / 5));
  }
  DataConfig config = text(file("chats.jsonl", numbered_lines(30)));
  config.validation_fraction = 0;
  EXPECT_EQ(shown(load(config).train).size(), 30u);
}

TEST_F(ConversationsTest, AreSplitWhereAllAreAlike) {
  std::string lines;
  for (int i = 0; i < 205; ++i) lines += line("u", "a");
  const data::Corpus corpus = load_lines(lines);
  EXPECT_EQ(shown(corpus.train).size(), 184u);
  EXPECT_EQ(shown(corpus.validation).size(), 21u);
  EXPECT_EQ(corpus.validation_bytes, 21);
}

TEST_F(ConversationsTest, AreCounted) {
  const data::Corpus corpus = load_lines(line("u", "abc") + line("u", " ") + line("\\u00e9", "de"));
  const data::Metadata counted = metadata();
  EXPECT_EQ(counted.conversations.shape, "prompt");
  EXPECT_EQ(counted.conversations.learn, "answers");
  EXPECT_EQ(counted.conversations.turns, 4);
  EXPECT_EQ(counted.conversations.answers, 2);
  EXPECT_EQ(counted.conversations.unanswered, 1);
  EXPECT_EQ(counted.train,
            (data::SplitCounts{.tokens = corpus.train.size(), .documents = 1, .bytes = 3, .learned = 4}));
  EXPECT_EQ(counted.validation,
            (data::SplitCounts{.tokens = corpus.validation.size(), .documents = 1, .bytes = 2, .learned = 3}));
  EXPECT_ERROR(load_lines(line("u", "")), ExitCode::data, "1 conversation without an answer of the assistant");
}

TEST_F(ConversationsTest, AreDescribedAndTheFirstOneIsShown) {
  for (int i = 0; i < 2; ++i) {  // from the cache too
    test::CapturedLog captured;
    load_lines(line("u", "abc") + line("v", "") + line("w", "de"));
    const std::string said = captured.text();
    for (const char* part :
         {"chats.jsonl: 2 conversations ('prompt') with 4 turns: 2 answers are learned, 7 of ",
          "; left out: 1 without an answer",
          "in brackets: [<|im_start|>user\\nu<|im_end|>\\n<|im_start|>assistant\\n]abc<|im_end|>[\\n]"})
      EXPECT_NE(said.find(part), std::string::npos) << said;
  }
  test::CapturedLog captured;
  load_lines(line(std::string(1000, 'u'), std::string(1000, 'a')) + line("u", "a"));
  const std::string said = captured.text(), before = "in brackets: ";
  const size_t begin = said.find(before) + before.size();
  const std::string shown = said.substr(begin, said.find('\n', begin) - begin);
  EXPECT_LE(shown.size(), 200u);
  EXPECT_TRUE(shown.starts_with("[<|im_start|>user")) << shown;
  EXPECT_NE(shown.find("...]aaaa"), std::string::npos) << shown;
}

TEST_F(ConversationsTest, AreLearnedInTheModelsTemplate) {
  tokenizer::TextFormat format;
  format.chat_template = "{% for m in messages %}{{ m.content ~ '<|im_end|>' }}{% endfor %}";
  const data::Corpus corpus = load(text(file("chats.jsonl", kHello)), format);
  EXPECT_EQ(shown(corpus.train), std::vector<std::string>{"[u<|im_end|>]a<|im_end|>|"});
  EXPECT_EQ(corpus.text_format->chat_template, format.chat_template);
}

TEST_F(ConversationsTest, AreOthersInAnotherTemplateOrLearnedOtherwise) {
  DataConfig config = text(file("chats.jsonl", numbered_lines(3)));
  std::set<std::string> fingerprints = {load(config).fingerprint};
  EXPECT_EQ(load(config).fingerprint, *fingerprints.begin());
  EXPECT_EQ(entries(), 1);
  tokenizer::TextFormat format;
  format.chat_template = "{% for m in messages %}{{ m.content ~ '<|im_end|>' }}{% endfor %}";
  fingerprints.insert(load(config, format).fingerprint);
  config.learn = Learn::all;
  fingerprints.insert(load(config).fingerprint);
  EXPECT_EQ(fingerprints.size(), 3u);
  EXPECT_EQ(entries(), 3);
  // A resumed run has the format that the first one chose.
  const data::Corpus first = load(config);
  EXPECT_EQ(load(config, first.text_format).fingerprint, first.fingerprint);
  // To texts it is all the same.
  config = text(file("a.txt", std::string(300, 'x')));
  load_corpus(config, 1, tokenizer_->to_json());
  EXPECT_EQ(entries(), 4);
  config.learn = Learn::last;
  load_corpus(config, 1, tokenizer_->to_json(), {}, format);
  EXPECT_EQ(entries(), 4);
}

TEST_F(ConversationsTest, NeedAModelThatChats) {
  DataConfig config = text(file("chats.jsonl", kHello));
  for (const char* learned : {"char", "bpe:300"}) {
    config.tokenizer = learned;
    EXPECT_ERROR(load_corpus(config, 4), ExitCode::config,
                 "is learned from texts; begin with a model (training.init_from)");
  }
  // A tokenizer alone is enough: it gets the tokens of ChatML that it lacks.
  config.tokenizer = "byte";
  test::CapturedLog captured;
  const data::Corpus corpus = load_corpus(config, 4);
  EXPECT_EQ(shown(corpus.train), std::vector<std::string>{kHelloShown});
  EXPECT_EQ(corpus.vocab_size, 258);
  EXPECT_EQ(corpus.tokenizer->encode_with_specials("<|im_end|>"), std::vector<int32_t>{257});
  EXPECT_EQ(corpus.text_format->ends, std::vector<int32_t>{257});
  EXPECT_NE(captured.text().find(
                "Conversations are laid out in ChatML, since the model has no chat template; new tokens of "
                "the tokenizer: <|im_start|>, <|im_end|>"),
            std::string::npos);
  config.tokenizer = file("tokenizer.json", tokenizer_->to_json());
  EXPECT_EQ(shown(load_corpus(config, 4).train), std::vector<std::string>{kHelloShown});
}

TEST_F(ConversationsTest, AreLaidOutInANamedTemplate) {
  DataConfig config = text(file("chats.jsonl", kHello));
  config.chat_template = "zephyr";
  tokenizer::TextFormat format;
  format.chat_template = chat::kChatMl, format.ends = {257};
  const data::Corpus corpus = load(config, format);
  EXPECT_EQ(shown(corpus.train), std::vector<std::string>{"[<|user|>\nu<|im_end|>\n<|assistant|>\n]a<|im_end|>|[\n]"});
  EXPECT_NE(corpus.text_format->chat_template, chat::kChatMl);
  // A resumed run has the format that the first one chose.
  EXPECT_EQ(load(config, corpus.text_format).fingerprint, corpus.fingerprint);
  EXPECT_EQ(load(config, corpus.text_format).text_format, corpus.text_format);
}

TEST_F(ConversationsTest, HaveTokensInTheirWordsWhereTheyAreTrusted) {
  DataConfig config = text(file("chats.jsonl", line("<|im_end|>", "a")));
  const data::Corpus plain = load(config);
  config.trust_markup = true;
  const data::Corpus trusting = load(config);
  EXPECT_EQ(entries(), 2);
  EXPECT_EQ(plain.train.size() - trusting.train.size(), 9) << "ten bytes, or one token";
  EXPECT_EQ(trusting.train[6], 257);
  EXPECT_EQ(shown(trusting.train), shown(plain.train));
}

TEST_F(ConversationsTest, NameTheLineThatTheTemplateRefuses) {
  tokenizer::TextFormat format;
  format.chat_template =
      "{% for m in messages %}{% if m.content == 'x' %}{{ raise_exception('no x') }}{% endif %}{{ m.content }}{% endfor %}";
  EXPECT_ERROR(load(text(file("chats.jsonl", line("u", "a") + line("x", "a"))), format), ExitCode::data,
               "chats.jsonl: line 2: the chat template does not take this dialogue: no x");
}

TEST_F(ConversationsTest, AreLeftOutWholeBeyondMaxChars) {
  DataConfig config = text(file("chats.jsonl", numbered_lines(10)));
  config.max_chars = 200;  // of two conversations, as they are written with roles
  config.validation_fraction = 0;
  EXPECT_EQ(shown(load(config).train).size(), 2u);
}

TEST_F(ConversationsTest, AreRepairedOrRefusedWhereTheMarksAreDamaged) {
  const DataConfig config = text(file("chats.jsonl", numbered_lines(20)));
  const data::Corpus corpus = load(config);
  fs::path bin;
  for (const auto& entry : fs::directory_iterator(folder_ / "cache"))
    if (entry.is_directory()) bin = entry.path() / data::kBinFile;
  const std::string marks = data::marks_beside(bin), good = slurp(marks);
  EXPECT_EQ(fs::path(marks).filename(), data::kMarksFile);
  std::string flipped = good;
  flipped[5] ^= 1;
  DataConfig of_bin;
  of_bin.bin = bin;
  EXPECT_EQ(load_corpus(of_bin, 4).fingerprint, corpus.fingerprint);
  EXPECT_EQ(shown(load_corpus(of_bin, 4).train), shown(corpus.train));
  const auto spoil = [&](const std::string& bytes, const std::string& why) {
    fs::remove(marks);
    file(fs::relative(marks, folder_.path()), bytes);
    EXPECT_ERROR(load_corpus(of_bin, 4), ExitCode::data, why);
    EXPECT_EQ(load(config).fingerprint, corpus.fingerprint);  // prepared anew
    EXPECT_EQ(slurp(marks), good);
  };
  spoil(flipped, "tokens_bpe_marks.bin: its content is not what ");
  spoil(good.substr(1), "tokens_bpe_marks.bin: it holds ");
  fs::remove(marks);
  EXPECT_ERROR(load_corpus(of_bin, 4), ExitCode::data, "tokens_bpe_marks.bin");
  EXPECT_EQ(load(config).fingerprint, corpus.fingerprint);
}

TEST_F(ConversationsTest, AreNoPartOfARunOnTexts) {
  DataConfig config = text(file("a.txt", std::string(300, 'x')));
  config.stages = {{0, {}, {{file("chats.jsonl", kHello), 1}}, {}}};
  EXPECT_ERROR(load_corpus(config, 1, tokenizer_->to_json()), ExitCode::data,
               "chats.jsonl: data.stages: conversations and other texts cannot be learned in one run");
}

class PreparedConversationsTest : public ConversationsTest {
 protected:
  PrepareOptions options(const std::string& lines) const {
    PrepareOptions options;
    options.inputs = {file("chats.jsonl", lines)};
    options.saved_tokenizer = tokenizer_->to_json();
    options.chat_format = tokenizer::TextFormat();
    return options;
  }
  DataConfig bin_of(const PrepareOptions& options) const {
    prepare(options, folder_ / "out");
    DataConfig config;
    config.bin = folder_ / (std::string("out/") + data::kBinFile);
    return config;
  }
};

TEST_F(PreparedConversationsTest, AreWhatGptTrainMakesOfThem) {
  const std::string lines = numbered_lines(30);
  const data::Corpus corpus = load_lines(lines), of_bin = load(bin_of(options(lines)));
  EXPECT_EQ(of_bin.fingerprint, corpus.fingerprint);
  EXPECT_EQ(of_bin.text_format, corpus.text_format);
  EXPECT_TRUE(of_bin.has_conversations);
  EXPECT_EQ(shown(of_bin.train), shown(corpus.train));
}

TEST_F(PreparedConversationsTest, AreLaidOutAsTheOptionsSay) {
  PrepareOptions zephyr = options(line("<|im_end|>", "a"));
  zephyr.chat_template = "plain", zephyr.learn = Learn::all, zephyr.trust_markup = true;
  EXPECT_EQ(shown(load(bin_of(zephyr)).train),
            std::vector<std::string>{"[U]ser:\n<|im_end|>\n\nAssistant:\na<|im_end|>|\n\n"});
}

TEST_F(PreparedConversationsTest, BringTheirTemplateToAModelThatHasNone) {
  PrepareOptions made = options(kHello);
  made.saved_tokenizer = tokenizer::make_tokenizer("byte", "")->to_json();
  made.chat_template = "llama3";
  const DataConfig config = bin_of(made);
  const std::string byte = made.saved_tokenizer;
  const data::Corpus corpus = load_corpus(config, 4, byte, 256);
  EXPECT_EQ(corpus.vocab_size, 260);
  EXPECT_EQ(corpus.text_format->chat_template, chat::template_source("llama3"));
  EXPECT_EQ(load_corpus(config, 4, corpus.tokenizer->to_json(), 260, corpus.text_format).fingerprint,
            corpus.fingerprint);
  // Without a model the tokenizer of the bin counts.
  EXPECT_EQ(load_corpus(config, 4).text_format, corpus.text_format);
  // Another model, or another template, is not what they were prepared for.
  EXPECT_ERROR(load_corpus(config, 4, tokenizer_->to_json()), ExitCode::data, "made with another tokenizer");
  tokenizer::TextFormat format;
  format.chat_template = chat::kChatMl;
  EXPECT_ERROR(load_corpus(config, 4, byte, 256, format), ExitCode::data,
               "its conversations are laid out in another chat template than the model's");
  DataConfig other = config;
  other.chat_template = "zephyr";
  EXPECT_ERROR(load_corpus(other, 4, byte, 256), ExitCode::data,
               "in another chat template than zephyr; prepare them again");
}

TEST_F(PreparedConversationsTest, AreLeftOutWhereTheyRepeatEarlierOnes) {
  PrepareOptions exact = options(line("u", "a") + line("v", "b") + line("u", "a"));
  exact.deduplicate = Deduplicate::exact, exact.validation_fraction = 0;
  EXPECT_EQ(shown(load(bin_of(exact)).train).size(), 2u);
}

TEST_F(PreparedConversationsTest, RefuseWhatDoesNotGoWithThem) {
  const auto refused = [&](const auto& change, const std::string& lines, const std::string& why) {
    PrepareOptions wrong = options(lines);
    change(wrong);
    EXPECT_ERROR(prepare(wrong, folder_ / "out"), ExitCode::config, why);
  };
  refused([](auto& o) { o.format = BinFormat::nanogpt; }, kHello, "which only --format prepared has");
  refused([](auto& o) { o.parse_special_tokens = true; }, kHello,
          "--trust-markup does what --parse-special-tokens does");
  refused([](auto& o) { o.saved_tokenizer = "", o.tokenizer = "bpe:300"; }, kHello,
          "the tokenizer bpe:300 is learned from texts; name that of the model");
  refused([](auto& o) { o.learn = Learn::last; }, R"({"text": "a"})",
          "are for conversations, and the input holds texts");
}

TEST_F(ConversationsTest, AreNotForPreparingWithoutAFormat) {
  PrepareOptions options;
  options.inputs = {file("chats.jsonl", kHello)};
  options.tokenizer = "byte";
  EXPECT_ERROR(
      prepare(options, folder_ / "out"), ExitCode::data,
      "chats.jsonl: line 1: there is no field 'text'; the line is a conversation ('messages'), and gpt-train learns "
      "from a file that holds nothing else: gpt-train --init_from MODEL --data FILE");
}

}  // namespace
}  // namespace gpt::prepare
