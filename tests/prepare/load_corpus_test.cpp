#include "gpt/prepare/load_corpus.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/hash.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "prepare/corpus_fixture.h"
#include "support/expect_error.h"

namespace gpt::prepare {
namespace {

namespace fs = std::filesystem;

TEST_F(CorpusTest, SplitsTheEndOffForValidation) {
  const data::Corpus corpus = load_corpus(text(file("a.txt", "0123456789abcdefghiX")), 1);
  EXPECT_EQ(decoded(corpus, corpus.train), "0123456789abcdefgh");
  EXPECT_EQ(decoded(corpus, corpus.validation), "iX");
  EXPECT_EQ(corpus.vocab_size, 20);  // the vocabulary is the whole text's
  EXPECT_EQ(corpus.source, folder_ / "a.txt");
}

// nanoGPT's prepare.py: n = len(data); train = data[:int(n * 0.9)].
TEST_F(CorpusTest, SplitsWhereNanoGptDoes) {
  for (const int size : {1115394, 1000, 1009, 99}) {
    const data::Corpus corpus = load_corpus(text(file("a.txt", std::string(size, 'x'))), 4);
    EXPECT_EQ(corpus.train.size(), static_cast<int64_t>(size * 0.9));
    EXPECT_EQ(corpus.train.size() + corpus.validation.size(), size);
  }
}

TEST_F(CorpusTest, MaxCharsCountsCharacters) {
  DataConfig config = text(file("a.txt", "éàéàéàéàéàzzzz"));
  config.max_chars = 10;
  config.validation_fraction = 0;
  const data::Corpus corpus = load_corpus(config, 4);
  EXPECT_EQ(decoded(corpus, corpus.train), "éàéàéàéàéà");
  EXPECT_EQ(corpus.vocab_size, 2);
  EXPECT_EQ(corpus.validation.size(), 0);
}

TEST_F(CorpusTest, SamplesStartFromWhatTrainingSees) {
  std::string book;
  for (int i = 0; i < 500; ++i) book += "line " + std::to_string(i) + "\n";
  DataConfig config = text(file("book.txt", book));
  config.tokenizer = "bpe:300";
  const data::Corpus one = load_corpus(config, 4);
  EXPECT_EQ(one.sample_start, one.tokenizer->encode("\n").at(0));
  std::string lines;
  for (int i = 0; i < 500; ++i) lines += "{\"text\": \"document " + std::to_string(i) + "\"}\n";
  config.text = file("many.jsonl", lines);
  const data::Corpus many = load_corpus(config, 4);
  EXPECT_EQ(many.sample_start, many.tokenizer->end_of_text());
}

TEST_F(CorpusTest, ATextOfOneCharacterIsTooShort) {
  EXPECT_ERROR(load_corpus(text(file("a.txt", "a")), 8), ExitCode::data,
               "a.txt: the training split has 1 token, but a sequence of 8 needs at least 9");
}

TEST_F(CorpusTest, MetadataThatContradictItsBinIsRefused) {
  std::string ids;
  for (int i = 0; i < 400; ++i) ids += uint16_ids(i % 70, i % 70 + 1) + std::string(2, '\0');
  const data::Corpus wide = load_corpus(bin(ids, R"({"vocab_size": 100})"), 4);
  EXPECT_EQ(wide.train.size() + wide.validation.size(), 400);
  EXPECT_ERROR(load_corpus(bin(ids, R"({"vocab_size": 100, "dtype": "uint16"})"), 4), ExitCode::data,
               "says that its ids have 16 bits, but then every second one would be 0: correct 'dtype'");
}

TEST_F(CorpusTest, ASavedTokenizerRules) {
  const std::string saved = tokenizer::make_tokenizer("char", "abcdef")->to_json();
  DataConfig config = text(file("a.txt", "fedcfedc"));
  config.validation_fraction = 0;
  const data::Corpus corpus = load_corpus(config, 4, saved);
  EXPECT_EQ(corpus.vocab_size, 6);
  EXPECT_EQ(corpus.train[0], 5);
  const std::string other = file("b.txt", "abcdxabcd");
  EXPECT_ERROR(load_corpus(text(other), 4, saved), ExitCode::data,
               other + ": byte 4: 'x' (U+0078) is not in the vocabulary of 6 characters");
}

TEST_F(CorpusTest, DocumentsBeginWithWhatTheModelHasSeenBeforeEveryText) {
  DataConfig config = text(file("a.txt", "fed\n<|endoftext|>\ncab\n"));
  config.validation_fraction = 0, config.tokenizer = "byte";
  tokenizer::TextFormat format;
  const auto ids = [&] {
    const data::Corpus corpus = load_corpus(config, 4, /*saved_tokenizer=*/"", {}, format);
    std::vector<int32_t> found;
    for (int64_t i = 0; i < corpus.train.size(); ++i) found.push_back(static_cast<int32_t>(corpus.train[i]));
    return found;
  };
  const std::vector<int32_t> without = ids();
  format.prefix = {1, 2};
  std::vector<int32_t> with = ids();
  const auto second = std::find(with.begin() + 2, with.end(), 1);
  ASSERT_NE(second, with.end());
  EXPECT_EQ(*(second + 1), 2);
  EXPECT_EQ(*(second + 2), 'c');
  with.erase(second, second + 2);
  with.erase(with.begin(), with.begin() + 2);
  EXPECT_EQ(with, without);
  format.prefix.clear();
  EXPECT_EQ(ids(), without) << "which is kept apart";
}

TEST_F(CorpusTest, NamesTheFileOfAFault) {
  const std::string latin1 = file("latin1.txt", "caf\xE9 au lait");
  EXPECT_ERROR(load_corpus(text(latin1), 4), ExitCode::data, latin1 + ": byte 3: 0xE9 is not valid UTF-8");
  const std::string absent = folder_ / "absent.txt";
  EXPECT_ERROR(load_corpus(text(absent), 4), ExitCode::data, absent);
  EXPECT_ERROR(load_corpus(text(file("empty.txt", "")), 4), ExitCode::data, "empty.txt: it is empty");
}

TEST_F(CorpusTest, ExplainsASplitThatIsTooShort) {
  DataConfig config = text(file("a.txt", std::string(400, 'x')));
  EXPECT_ERROR(
      load_corpus(config, 64), ExitCode::data,
      "the validation split has 40 tokens, but a sequence of 64 needs at least 65 (400 tokens, validation_fraction 0.1)");
  EXPECT_ERROR(load_corpus(config, 360), ExitCode::data,
               "the training split has 360 tokens, but a sequence of 360 needs at least 361");
  EXPECT_NO_THROW(load_corpus(config, 39));
  config.validation_fraction = 0;
  EXPECT_NO_THROW(load_corpus(config, 399));
}

TEST_F(CorpusTest, NeedsASource) { EXPECT_ERROR(load_corpus({}, 4), ExitCode::config, "data: nothing to read"); }

TEST_F(CorpusTest, FindsTheDatasetInTheWorkingDirectory) {
  const fs::path before = fs::current_path();
  fs::create_directory(folder_ / "data");
  file("data/shakespeare.txt", std::string(100, 'x'));
  fs::current_path(folder_.path());
  DataConfig config;
  config.dataset = DatasetName::shakespeare;
  config.cache_dir = folder_ / "cache";
  const data::Corpus corpus = load_corpus(config, 4);
  fs::current_path(before);
  EXPECT_EQ(corpus.source, "data/shakespeare.txt");
  EXPECT_EQ(corpus.train.size(), 90);
}

TEST_F(CorpusTest, ReadsABinWithItsMetadata) {
  std::string bytes;
  for (int i = 0; i < 20; ++i) bytes += {static_cast<char>(i), 0, 0, 0};
  std::ofstream(folder_ / "tok.json") << R"({"type":"byte"})";
  const data::Corpus corpus =
      load_corpus(bin(bytes, R"({"vocab_size": 300, "dtype": "uint32", "tokenizer": "tok.json"})"), 1);
  EXPECT_EQ(corpus.vocab_size, 300);
  EXPECT_EQ(corpus.train.width(), 4);
  EXPECT_EQ(corpus.train.size(), 18);
  EXPECT_EQ(corpus.validation[1], 19);
  EXPECT_EQ(corpus.tokenizer->name(), "byte");  // found beside the metadata
  EXPECT_EQ(data::text_bytes(corpus, data::Tokens::from_ids({65, 299}, 300)),
            1);  // an id that only the padded vocabulary has
  fs::create_directory(folder_ / "elsewhere");
  fs::rename(folder_ / "tok.json", folder_ / "elsewhere/tok.json");
  DataConfig config = bin(bytes, "");
  config.metadata = file("elsewhere/x.json", R"({"vocab_size": 300, "dtype": "uint32", "tokenizer": "tok.json"})");
  EXPECT_EQ(load_corpus(config, 1).tokenizer->name(), "byte");
}

TEST_F(CorpusTest, AHeaderTellsTheWidthWithoutMetadata) {
  const int32_t header[256] = {20240801, 7, 4};
  const int32_t ids[] = {128000, 1, 2, 3};
  const std::string bytes(reinterpret_cast<const char*>(header), sizeof header);
  DataConfig config = bin(bytes + std::string(reinterpret_cast<const char*>(ids), sizeof ids), "");
  config.validation_fraction = 0;
  EXPECT_EQ(load_corpus(config, 1, {}, 128256).train[0], 128000);
}

TEST_F(CorpusTest, ABinWithoutMetadataIsUint16OfTheModelsVocabulary) {
  const DataConfig config = bin(std::string(80, '\0'), "");
  EXPECT_EQ(load_corpus(config, 3, {}, 50304).vocab_size, 50304);
  EXPECT_EQ(load_corpus(config, 3, {}, 50304).train.size(), 36);
  EXPECT_EQ(load_corpus(config, 3, {}, 50304).tokenizer, nullptr);
  EXPECT_ERROR(load_corpus(config, 3), ExitCode::config, "data.metadata (JSON with vocab_size and dtype)");
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
  std::string large(800'000, '\0');
  large[600'000] = 65;
  EXPECT_ERROR(load_corpus(bin(large, R"({"vocab_size": 65})"), 8), ExitCode::data, "token 300000 has id 65");
  EXPECT_ERROR(load_corpus(bin(std::string(40, '\xFF'), R"({"vocab_size": 9, "dtype": "uint32"})"), 1), ExitCode::data,
               "token 0 has id 4294967295");
}

TEST_F(CorpusTest, ChecksMetadata) {
  const auto refused = [this](const std::string& metadata, const std::string& why) {
    EXPECT_ERROR(load_corpus(bin(std::string(80, '\0'), metadata), 3), ExitCode::data, "x.json: " + why);
  };
  refused("{", "invalid JSON at byte 2");
  refused("{}", "'vocab_size' is missing");
  refused(R"({"vocab_size": "65"})", "'vocab_size' is \"65\"");
  refused(R"({"vocab_size": 0})", "'vocab_size' is 0");
  refused(R"({"vocab_size": 65, "dtype": "int8"})", "'dtype' is \"int8\"");
  refused(R"({"vocab_size": 65, "tokenizer": 3})", "'tokenizer' is 3");
  DataConfig config = bin(std::string(80, '\0'), R"({"vocab_size": 65})");
  config.tokenizer = "byte";
  EXPECT_ERROR(load_corpus(config, 3), ExitCode::data, "its vocabulary has 65 ids, but its tokenizer has 256");
}

TEST_F(CorpusTest, ABinThatDoesNotSayItsVocabularyIsToldWhatDoes) {
  DataConfig config;
  config.bin = file("pile.bin", uint16_ids(0, 20));
  config.tokenizer = "char";
  const std::string why = "the vocabulary of " + config.bin +
                          " is not known, and tokenizer char, the default, does not say that "
                          "of a bin; set data.tokenizer (gpt2 or a tokenizer file";
  EXPECT_ERROR(load_corpus(config, 3), ExitCode::config, why + "), data.metadata");
  const std::string tokenizer = file("bpe_tokenizer.json", "{}");
  EXPECT_ERROR(load_corpus(config, 3), ExitCode::config, why + " such as " + tokenizer + "), data.metadata");
}

// ---- stages ----

TEST_F(CorpusTest, StagesNameFurtherFiles) {
  DataConfig config = text(file("a.txt", "abcdabcdabcdabcdabcd"));
  const std::string hard = file("hard.txt", "dcbadcbadcba"), bin = file("b.bin", uint16_ids(0, 4));
  config.stages = {{0, {}, {{kMainSource, 1.0}}}, {5, {}, {{hard, 1.0}, {bin, 2.0}}}};
  const data::Corpus corpus = load_corpus(config, 1);
  ASSERT_EQ(corpus.sources.size(), 3u);
  EXPECT_EQ(decoded(corpus, corpus.sources[0]), "abcdabcdabcdabcdab");
  EXPECT_EQ(decoded(corpus, corpus.sources[1]), "dcbadcbadcba");  // all of it, in the main data's vocabulary
  EXPECT_EQ(decoded(corpus, corpus.sources[2]), "abcd");
  EXPECT_EQ(decoded(corpus, corpus.validation), "cd");
  DataConfig other = config;
  file("hard.txt", "dcbadcbadcbb");
  EXPECT_NE(load_corpus(other, 1).fingerprint, corpus.fingerprint);

  config.stages.push_back({9, 4, {{bin, 1.0}}});
  EXPECT_ERROR(load_corpus(config, 1), ExitCode::data,
               "b.bin: the stage from step 9 takes sequences of 4 + 1 tokens, but it has 4");
  config.stages.back().block_size = 3;
  EXPECT_NO_THROW(load_corpus(config, 1));
  config.stages.back().block_size = 5;
  EXPECT_ERROR(load_corpus(config, 1), ExitCode::data,
               "b.bin: the stage from step 9 takes sequences of 5 + 1 tokens, but it has 4");
  file("hard.txt", "xyz");
  EXPECT_ERROR(load_corpus(config, 1), ExitCode::data, "hard.txt: byte 0: 'x' (U+0078) is not in the vocabulary");
  file("b.bin", uint16_ids(0, 5));
  file("hard.txt", "abcd");
  EXPECT_ERROR(load_corpus(config, 1), ExitCode::data, "b.bin: token 4 has id 4, outside the vocabulary of 4");
}

TEST_F(CorpusTest, AStagesBinIsTheTrainingPartOfIt) {
  DataConfig config = text(file("a.txt", "abcdabcdabcdabcdabcd"));
  const std::string bin = file("b.bin", uint16_ids(0, 4));
  file("b_metadata.json", R"({"vocab_size": 4, "train": {"tokens": 3}, "validation": {"tokens": 1}})");
  config.stages = {{0, {}, {{bin, 1.0}}}};
  const data::Corpus corpus = load_corpus(config, 1);
  EXPECT_EQ(decoded(corpus, corpus.sources.at(0)), "abc");
  file("b_metadata.json", R"({"vocab_size": 4, "tokenizer_hash": ")" + std::string(32, '0') + "\"}");
  EXPECT_ERROR(load_corpus(config, 1), ExitCode::data,
               "b.bin: data.stages: made with a different tokenizer than the main data");
}

TEST_F(CorpusTest, AStagesTextNeedsTheTokenizerOfTheMainData) {
  DataConfig config = bin(uint16_ids(0, 20), R"({"vocab_size": 20})");
  config.stages = {{0, {}, {{file("hard.txt", "text"), 1.0}}}};
  EXPECT_ERROR(load_corpus(config, 1), ExitCode::data, "hard.txt: data.stages: a text needs a tokenizer");
}

TEST_F(CorpusTest, AStageDoesNotTrainOnValidation) {
  std::string all;
  for (int i = 0; i < 500; ++i) all += std::to_string(i * 7919) + " ";
  DataConfig config = text(file("a.txt", all));
  const std::string again = file("again.txt", all);
  config.stages = {{0, {}, {{again, 1.0}}}};
  EXPECT_ERROR(load_corpus(config, 8), ExitCode::data, "a.txt: validation is contained in training: of ");
  file("again.txt", all.substr(0, all.size() / 2));
  EXPECT_NO_THROW(load_corpus(config, 8));
}

// ---- prepared bins: what the metadata says must be what the files hold ----

TEST_F(CorpusTest, APreparedBinHasItsOwnSplit) {
  DataConfig config = bin(uint16_ids(0, 20),
                          R"({"vocab_size": 20, "train": {"tokens": 13}, "validation": {"tokens": 7, "bytes": 21}})");
  const data::Corpus corpus = load_corpus(config, 3);
  EXPECT_EQ(corpus.train.size(), 13);
  EXPECT_EQ(corpus.validation[0], 13);
  EXPECT_EQ(corpus.validation_bytes, 21);
  EXPECT_EQ(data::text_bytes(corpus, corpus.validation.slice(0, 2)), 6);  // without a tokenizer: the average
  config.validation_fraction = 0;                                         // is of text, not of this
  EXPECT_EQ(load_corpus(config, 3).validation.size(), 7);
  EXPECT_ERROR(load_corpus(config, 7), ExitCode::data,
               "the validation split has 7 tokens, but a sequence of 7 needs at least 8;");
}

TEST_F(CorpusTest, MetadataBesideABinIsFound) {
  DataConfig config;
  config.bin = file("tokens_bpe.bin", uint16_ids(0, 20));
  file("tokens_bpe_metadata.json", R"({"vocab_size": 20, "train": {"tokens": 13}, "validation": {"tokens": 7}})");
  EXPECT_EQ(load_corpus(config, 3).train.size(), 13);
}

TEST_F(CorpusTest, SizesAndHashesContradictingTheMetadata) {
  const std::string counts = R"({"vocab_size": 20, "train": {"tokens": 13}, "validation": {"tokens": 7})";
  EXPECT_ERROR(load_corpus(bin(uint16_ids(0, 19), counts + "}"), 3), ExitCode::data, "x.bin: it holds 19 tokens, but ");
  EXPECT_ERROR(load_corpus(bin(uint16_ids(0, 19), counts + "}"), 3), ExitCode::data, "x.json says 20");
  // XXH3-128 of the file's 40 bytes.
  const std::string hash = R"(, "bin_hash": "aabc1b915b14b24c1fed6fa3c8c4d7a9"})";
  EXPECT_NO_THROW(load_corpus(bin(uint16_ids(0, 20), counts + hash), 3));
  EXPECT_ERROR(load_corpus(bin(uint16_ids(0, 18) + uint16_ids(0, 2), counts + hash), 3), ExitCode::data,
               "x.bin: its content is not what ");
  file("tok.json", R"({"type":"byte"})");
  EXPECT_ERROR(load_corpus(bin(uint16_ids(0, 20),
                               R"({"vocab_size": 256, "tokenizer": "tok.json", "tokenizer_hash": ")" +
                                   std::string(32, '0') + "\"}"),
                           1),
               ExitCode::data, "tok.json: not the tokenizer that ");
}

TEST_F(CorpusTest, ATokenizerIsNotLostSilently) {
  const std::string hash = R"("tokenizer_hash": ")" + hash128(tokenizer::make_tokenizer("byte", "")->to_json()) + "\"";
  EXPECT_ERROR(load_corpus(bin(uint16_ids(0, 20), R"({"vocab_size": 256, "uokenizer": "tok.json", )" + hash + "}"), 1),
               ExitCode::data, "x.json: it has the hash of a tokenizer, but does not name its file");
  EXPECT_ERROR(load_corpus(bin(uint16_ids(0, 20), R"({"vocab_size": 256, "tokenizer": "tok.json", )" + hash + "}"), 1),
               ExitCode::data, "tok.json is missing; put it there, or name it in data.tokenizer");
}

TEST_F(CorpusTest, AGivenTokenizerIsTheOneThatMadeTheBin) {
  const std::string hash = hash128(tokenizer::make_tokenizer("byte", "")->to_json());
  DataConfig config =
      bin(uint16_ids(0, 20), R"({"vocab_size": 256, "tokenizer": "absent.json", "tokenizer_hash": ")" + hash + "\"}");
  config.tokenizer = file("own.json", R"({ "type": "byte" })");  // what it says counts, not how it is spelled
  EXPECT_EQ(load_corpus(config, 1).tokenizer->name(), "byte");
  config.tokenizer = file("other.json", tokenizer::make_tokenizer("char", "abc")->to_json());
  EXPECT_ERROR(load_corpus(config, 1), ExitCode::data,
               config.tokenizer + ": not the tokenizer that " + config.bin + " was made with (their hashes differ)");
}

TEST_F(CorpusTest, TheTokenizerTellsTheVocabulary) {
  DataConfig config = bin(uint16_ids(0, 80), "");
  config.tokenizer = "byte";
  EXPECT_EQ(load_corpus(config, 3).vocab_size, 256);
  config.tokenizer = "bpe:300";
  EXPECT_ERROR(load_corpus(config, 3), ExitCode::config, "bpe:300 is learned from text");
}

TEST_F(CorpusTest, ValidationInAFileOfItsOwn) {
  DataConfig config = bin(uint16_ids(0, 3000), R"({"vocab_size": 5000})");
  config.validation_bin = file("val.bin", uint16_ids(3000, 3500));
  const data::Corpus corpus = load_corpus(config, 64);
  EXPECT_EQ(corpus.train.size(), 3000);
  EXPECT_EQ(corpus.validation.size(), 500);
  EXPECT_EQ(corpus.validation[0], 3000);
  config.validation_bin = file("val2.bin", uint16_ids(3000, 3501));
  EXPECT_NE(load_corpus(config, 64).fingerprint, corpus.fingerprint);
  config.validation_bin = file("val3.bin", uint16_ids(4900, 5001));
  EXPECT_ERROR(load_corpus(config, 64), ExitCode::data,
               "val3.bin: token 100 has id 5000, outside the vocabulary of 5000");
  config.validation_bin = file("val4.bin", uint16_ids(0, 64));
  EXPECT_ERROR(load_corpus(config, 64), ExitCode::data,
               "the validation split has 64 tokens, but a sequence of 64 needs at least 65;");
  config.validation_bin = file("val5.bin", "");
  EXPECT_ERROR(load_corpus(config, 64), ExitCode::data, "the validation split has 0 tokens");
}

TEST_F(CorpusTest, AValidationFileIsLookedForInTrainingFilesOfAnySize) {
  DataConfig config = bin("", R"({"vocab_size": 5000})");
  std::error_code too_large;
  fs::resize_file(config.bin, (int64_t{1} << 29) + 1000, too_large);  // 2^28 tokens of id 0, which take no space
  if (too_large) GTEST_SKIP() << too_large.message();
  std::ofstream(config.bin, std::ios::binary | std::ios::app) << uint16_ids(1000, 4000);
  config.validation_bin = file("val.bin", uint16_ids(1000, 4000));
  EXPECT_ERROR(load_corpus(config, 64), ExitCode::data,
               "val.bin: validation is contained in training: of 45 windows of it, 45 are in ");
}

TEST_F(CorpusTest, TwoFilesAreWhatTheMetadataSays) {
  DataConfig config;
  const auto load = [&](int train, int validation, const std::string& more = "") {
    config = bin(uint16_ids(0, train), R"({"vocab_size": 5000, "train": {"tokens": 20}, )" + more + "}");
    config.validation_bin = file("val.bin", uint16_ids(100, 100 + validation));
    return load_corpus(config, 3);
  };
  const std::string counts = R"("validation": {"tokens": 7})";
  EXPECT_EQ(load(20, 7, counts).validation.size(), 7);
  EXPECT_ERROR(load(21, 7, counts), ExitCode::data, "x.bin: it holds 21 tokens, but ");
  EXPECT_ERROR(load(20, 8, counts), ExitCode::data, "val.bin: it holds 8 tokens, but ");
  // XXH3-128 of the first file's 40 bytes. That file was made without a validation part: the other one is not its matter.
  const std::string hash = R"("bin_hash": "aabc1b915b14b24c1fed6fa3c8c4d7a9")";
  EXPECT_EQ(load(20, 8, hash).validation.size(), 8);
  file("x.bin", uint16_ids(1, 21));
  EXPECT_ERROR(load_corpus(config, 3), ExitCode::data, "x.bin: its content is not what ");
}

TEST_F(CorpusTest, ValidationIsNoPartOfTraining) {
  DataConfig config = bin(uint16_ids(0, 3000), R"({"vocab_size": 5000})");
  config.validation_bin = config.bin;
  EXPECT_ERROR(load_corpus(config, 64), ExitCode::data, "data.bin and data.validation_bin are the same file");
  config.validation_bin = file("copy.bin", uint16_ids(1000, 2000));
  EXPECT_ERROR(load_corpus(config, 64), ExitCode::data,
               "copy.bin: validation is contained in training: of 14 windows of it, 14 are in ");
  EXPECT_ERROR(load_corpus(config, 64), ExitCode::data, "(token 1000 there is token 0 here)");
  config.validation_bin = file("most.bin", uint16_ids(1000, 1640) + uint16_ids(4000, 4360));
  EXPECT_ERROR(load_corpus(config, 64), ExitCode::data, "of 14 windows of it, 9 are in ");
  config.validation_bin = file("less.bin", uint16_ids(1000, 1400) + uint16_ids(4000, 4600));
  EXPECT_NO_THROW(load_corpus(config, 64));
}

TEST_F(CorpusTest, BytesOfTextAreCountedTokenByToken) {
  DataConfig config = text(file("a.txt", "aéaéaéaéaéaéaéaéaéaé"));
  config.validation_fraction = 0;
  const data::Corpus corpus = load_corpus(config, 4);
  EXPECT_EQ(data::text_bytes(corpus, corpus.train), 30);
  EXPECT_EQ(data::text_bytes(corpus, corpus.train.slice(0, 1)), 1);
  EXPECT_EQ(data::text_bytes(corpus, corpus.train.slice(1, 2)), 2);
  data::Corpus unknown;
  EXPECT_EQ(data::text_bytes(unknown, corpus.train), std::nullopt);
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
  config.text = folder_ / "a.txt";
  config.validation_fraction = 0.2;
  EXPECT_NE(load_corpus(config, 1).fingerprint, first);
}

}  // namespace
}  // namespace gpt::prepare
