#include "gpt/data/corpus.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gpt/core/error.h"
#include "support/expect_error.h"

namespace gpt {
namespace {

namespace fs = std::filesystem;

class CorpusTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("corpus_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string file(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return (folder_ / name).string();
  }
  static DataConfig text(const std::string& path) {
    DataConfig config;
    config.text = path;
    return config;
  }
  DataConfig bin(const std::string& bytes, const std::string& metadata) const {
    DataConfig config;
    config.bin = file("x.bin", bytes);
    if (!metadata.empty()) config.metadata = file("x.json", metadata);
    return config;
  }

  fs::path folder_;
};

std::string decoded(const Corpus& corpus, const Tokens& tokens) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tokens.size(); ++i) ids.push_back(tokens[i]);
  return corpus.tokenizer->decode(ids);
}

TEST_F(CorpusTest, SplitsTheEndOffForValidation) {
  const Corpus corpus = load_corpus(text(file("a.txt", "0123456789abcdefghiX")), 1);
  EXPECT_EQ(decoded(corpus, corpus.train), "0123456789abcdefgh");
  EXPECT_EQ(decoded(corpus, corpus.validation), "iX");
  EXPECT_EQ(corpus.vocab_size, 20);  // the vocabulary is the whole text's
  EXPECT_EQ(corpus.source, (folder_ / "a.txt").string());
}

// nanoGPT's prepare.py: n = len(data); train = data[:int(n * 0.9)].
TEST_F(CorpusTest, SplitsWhereNanoGptDoes) {
  for (const int size : {1115394, 1000, 1009, 99}) {
    const Corpus corpus = load_corpus(text(file("a.txt", std::string(size, 'x'))), 4);
    EXPECT_EQ(corpus.train.size(), static_cast<int64_t>(size * 0.9));
    EXPECT_EQ(corpus.train.size() + corpus.validation.size(), size);
  }
}

TEST_F(CorpusTest, MaxCharsCountsCharacters) {
  DataConfig config = text(file("a.txt", "éàéàéàéàéàzzzz"));
  config.max_chars = 10;
  config.validation_fraction = 0;
  const Corpus corpus = load_corpus(config, 4);
  EXPECT_EQ(decoded(corpus, corpus.train), "éàéàéàéàéà");
  EXPECT_EQ(corpus.vocab_size, 2);
  EXPECT_EQ(corpus.validation.size(), 0);
}

TEST_F(CorpusTest, ASavedTokenizerRules) {
  const std::string saved = make_tokenizer("char", "abcdef")->to_json();
  DataConfig config = text(file("a.txt", "fedcfedc"));
  config.validation_fraction = 0;
  const Corpus corpus = load_corpus(config, 4, saved);
  EXPECT_EQ(corpus.vocab_size, 6);
  EXPECT_EQ(corpus.train[0], 5);
  const std::string other = file("b.txt", "abcdxabcd");
  EXPECT_ERROR(load_corpus(text(other), 4, saved), ExitCode::data,
               other + ": byte 4: 'x' (U+0078) is not in the vocabulary of 6 characters");
}

TEST_F(CorpusTest, NamesTheFileOfAFault) {
  const std::string latin1 = file("latin1.txt", "caf\xE9 au lait");
  EXPECT_ERROR(load_corpus(text(latin1), 4), ExitCode::data, latin1 + ": byte 3: 0xE9 is not valid UTF-8");
  const std::string absent = (folder_ / "absent.txt").string();
  EXPECT_ERROR(load_corpus(text(absent), 4), ExitCode::data, absent);
  EXPECT_ERROR(load_corpus(text(file("empty.txt", "")), 4), ExitCode::data, "the training split has 0 tokens");
}

TEST_F(CorpusTest, ExplainsASplitThatIsTooShort) {
  DataConfig config = text(file("a.txt", std::string(400, 'x')));
  EXPECT_ERROR(load_corpus(config, 64), ExitCode::data,
               "the validation split has 40 tokens, block_size 64 needs at least 65 (400 tokens, validation_fraction 0.1)");
  EXPECT_ERROR(load_corpus(config, 360), ExitCode::data, "the training split has 360 tokens, block_size 360 needs at least 361");
  EXPECT_NO_THROW(load_corpus(config, 39));
  config.validation_fraction = 0;
  EXPECT_NO_THROW(load_corpus(config, 399));
}

TEST_F(CorpusTest, NeedsASource) {
  EXPECT_ERROR(load_corpus({}, 4), ExitCode::config, "data: nothing to read");
}

TEST_F(CorpusTest, FindsTheDatasetInTheWorkingDirectory) {
  const fs::path before = fs::current_path();
  fs::create_directory(folder_ / "data");
  file("data/shakespeare.txt", std::string(100, 'x'));
  fs::current_path(folder_);
  DataConfig config;
  config.dataset = DatasetName::shakespeare;
  const Corpus corpus = load_corpus(config, 4);
  fs::current_path(before);
  EXPECT_EQ(corpus.source, "data/shakespeare.txt");
  EXPECT_EQ(corpus.train.size(), 90);
}

TEST_F(CorpusTest, ReadsABinWithItsMetadata) {
  std::string bytes;
  for (int i = 0; i < 20; ++i) bytes += {static_cast<char>(i), 0, 0, 0};
  std::ofstream(folder_ / "tok.json") << R"({"type":"byte"})";
  const Corpus corpus =
      load_corpus(bin(bytes, R"({"vocab_size": 300, "dtype": "uint32", "tokenizer": "tok.json"})"), 1);
  EXPECT_EQ(corpus.vocab_size, 300);
  EXPECT_EQ(corpus.train.width(), 4);
  EXPECT_EQ(corpus.train.size(), 18);
  EXPECT_EQ(corpus.validation[1], 19);
  EXPECT_EQ(corpus.tokenizer->name(), "byte");  // found beside the metadata
}

TEST_F(CorpusTest, ABinWithoutMetadataIsUint16OfTheModelsVocabulary) {
  const DataConfig config = bin(std::string(80, '\0'), "");
  EXPECT_EQ(load_corpus(config, 3, {}, 50304).vocab_size, 50304);
  EXPECT_EQ(load_corpus(config, 3, {}, 50304).train.size(), 36);
  EXPECT_EQ(load_corpus(config, 3, {}, 50304).tokenizer, nullptr);
  EXPECT_ERROR(load_corpus(config, 3), ExitCode::config, "set data.metadata");
}

TEST_F(CorpusTest, ChecksEveryIdOfABin) {
  for (const int width : {2, 4}) {
    for (const int64_t position : {0, 4095, 4096, 9999}) {
      std::string bytes(10000 * width, '\0');
      bytes[position * width] = 65;
      const std::string dtype = width == 2 ? "uint16" : "uint32";
      EXPECT_ERROR(load_corpus(bin(bytes, R"({"vocab_size": 65, "dtype": ")" + dtype + "\"}"), 8), ExitCode::data,
                   "x.bin: token " + std::to_string(position) + " has id 65, outside the vocabulary of 65");
      EXPECT_NO_THROW(load_corpus(bin(bytes, R"({"vocab_size": 66, "dtype": ")" + dtype + "\"}"), 8));
    }
  }
  EXPECT_ERROR(load_corpus(bin(std::string(40, '\xFF'), R"({"vocab_size": 9, "dtype": "uint32"})"), 1), ExitCode::data,
               "token 0 has id 4294967295");
}

TEST_F(CorpusTest, ChecksMetadata) {
  const auto refused = [this](const std::string& metadata, const std::string& why) {
    EXPECT_ERROR(load_corpus(bin(std::string(80, '\0'), metadata), 3), ExitCode::data, "x.json: " + why);
  };
  refused("{", "not a JSON object");
  refused("{}", "'vocab_size' is null");
  refused(R"({"vocab_size": "65"})", "'vocab_size' is \"65\"");
  refused(R"({"vocab_size": 0})", "'vocab_size' is 0");
  refused(R"({"vocab_size": 65, "dtype": "int8"})", "'dtype' is \"int8\"");
  refused(R"({"vocab_size": 65, "tokenizer": 3})", "'tokenizer' is 3");
  DataConfig config = bin(std::string(80, '\0'), R"({"vocab_size": 65})");
  config.tokenizer = "byte";
  EXPECT_ERROR(load_corpus(config, 3), ExitCode::data, "its vocabulary has 65 ids but its tokenizer 256");
}

TEST_F(CorpusTest, FingerprintSeesIdsSplitAndTokenizer) {
  DataConfig config = text(file("a.txt", "abcdabcdabcdabcdabcd"));
  const std::string first = load_corpus(config, 1).fingerprint;
  EXPECT_EQ(first.size(), 32u);
  EXPECT_EQ(load_corpus(config, 1).fingerprint, first);

  config.text = file("b.txt", "abcdabcdabcdabcdabcc");
  EXPECT_NE(load_corpus(config, 1).fingerprint, first);
  config.text = file("c.txt", "abceabceabceabceabce");  // the same ids, another vocabulary
  EXPECT_NE(load_corpus(config, 1).fingerprint, first);
  config.text = (folder_ / "a.txt").string();
  config.validation_fraction = 0.2;
  EXPECT_NE(load_corpus(config, 1).fingerprint, first);
}

TEST(Vocabulary, IsTheDatasUnlessALargerOneIsConfigured) {
  Corpus corpus;
  corpus.vocab_size = 65;
  corpus.source = "text.txt";
  EXPECT_EQ(vocabulary_for(corpus, {}), 65);
  EXPECT_EQ(vocabulary_for(corpus, 65), 65);
  EXPECT_EQ(vocabulary_for(corpus, 128), 128);
  try {
    vocabulary_for(corpus, 64);
    FAIL() << "64 rows cannot hold 65 tokens";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::config);
    EXPECT_NE(std::string(error.what()).find("65"), std::string::npos);
  }
}

}  // namespace
}  // namespace gpt
