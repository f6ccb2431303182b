// Text is prepared once and kept: what load_corpus() does with it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus_fixture.h"
#include "gpt/core/error.h"
#include "support/expect_error.h"

namespace gpt {
namespace {

namespace fs = std::filesystem;

class TextCacheTest : public CorpusTest {
 protected:
  int64_t entries() const {
    int64_t count = 0;
    for (const auto& entry : fs::directory_iterator(folder_ / "cache")) count += entry.is_directory();
    return count;
  }
};

TEST_F(TextCacheTest, TextIsPreparedOnceForTheSameContent) {
  DataConfig config = text(file("a.txt", std::string(300, 'x') + std::string(300, 'y')));
  const std::string first = load_corpus(config, 4).fingerprint;
  EXPECT_EQ(entries(), 1);
  const fs::path bin = fs::directory_iterator(folder_ / "cache")->path() / "tokens_bpe.bin";
  const auto written = fs::last_write_time(bin);
  EXPECT_EQ(load_corpus(config, 8).fingerprint, first);
  config.text = file("moved.txt", std::string(300, 'x') + std::string(300, 'y'));  // the content counts, not its name
  EXPECT_EQ(load_corpus(config, 4).fingerprint, first);
  EXPECT_EQ(entries(), 1);
  EXPECT_EQ(fs::last_write_time(bin), written);

  config.validation_fraction = 0.2;
  EXPECT_NE(load_corpus(config, 4).fingerprint, first);
  EXPECT_EQ(entries(), 2);
  config.validation_fraction = 0.1;
  config.tokenizer = "byte";
  EXPECT_NE(load_corpus(config, 4).fingerprint, first);
  EXPECT_EQ(entries(), 3);
  config.tokenizer = "char";
  file("moved.txt", std::string(300, 'x') + std::string(300, 'z'));
  EXPECT_NE(load_corpus(config, 4).fingerprint, first);
  EXPECT_EQ(entries(), 4);
}

TEST_F(TextCacheTest, WhatMakesOtherTokensIsAnotherEntryOfTheCache) {
  const auto folder = [this](const std::string& name, const std::string& one, const std::string& two) {
    fs::create_directory(folder_ / name);
    file(name + "/1.txt", one);
    file(name + "/2.txt", two);
    return folder_ / name;
  };
  load_corpus(text(folder("a", "abcabc", "abcabcabcabc")), 1);
  EXPECT_EQ(entries(), 1);
  load_corpus(text(folder("b", "abcabcabcabc", "abcabc")), 1);  // the same bytes, other documents
  EXPECT_EQ(entries(), 2);

  const std::string lines = "{\"text\": \"aaaaaaaaaabbbbbbbbbb\", \"body\": \"ccccccccccdddddddddd\"}\n";
  DataConfig config = text(file("a.jsonl", lines));
  config.validation_fraction = 0.2;
  const auto tokens = [&] {
    const Corpus corpus = load_corpus(config, 1);
    return decoded(corpus, corpus.train) + decoded(corpus, corpus.validation);
  };
  EXPECT_EQ(tokens(), "aaaaaaaaaabbbbbbbbbb");
  config.text_field = "body";
  EXPECT_EQ(tokens(), "ccccccccccdddddddddd");
  config.max_chars = 12;
  EXPECT_EQ(tokens(), "ccccccccccdd");
  config.text = file("a.txt", lines);  // the same bytes, read as another kind of text
  config.max_chars = 0;
  EXPECT_EQ(tokens(), lines);
  EXPECT_EQ(entries(), 6);
}

TEST_F(TextCacheTest, AnUnfinishedEntryOfTheCacheIsMadeAnew) {
  const DataConfig config = text(file("a.txt", std::string(400, 'x')));
  const std::string first = load_corpus(config, 4).fingerprint;
  const fs::path entry = fs::directory_iterator(folder_ / "cache")->path();
  fs::remove(entry / "tokens_bpe_metadata.json");  // which is written last
  std::ofstream(entry / "tokens_bpe.bin") << "half";
  EXPECT_EQ(load_corpus(config, 4).fingerprint, first);
}

TEST_F(TextCacheTest, TheCacheLiesWhereTheSystemKeepsCaches) {
  const char* const names[] = {"XDG_CACHE_HOME", "HOME"};
  const std::string values[] = {folder_ / "caches", folder_ / "home"};
  std::vector<std::optional<std::string>> before;
  for (const char* name : names) before.push_back(getenv(name) ? std::optional(getenv(name)) : std::nullopt);
  for (int i = 0; i < 2; ++i) setenv(names[i], values[i].c_str(), 1);
  DataConfig config = text(file("a.txt", std::string(400, 'x')));
  config.cache_dir.clear();
  load_corpus(config, 4);
  EXPECT_TRUE(fs::is_directory(folder_ / "caches/gpt-train"));
  EXPECT_FALSE(fs::exists(folder_ / "home"));
  unsetenv("XDG_CACHE_HOME");
  load_corpus(config, 4);
  EXPECT_TRUE(fs::is_directory(folder_ / "home/.cache/gpt-train"));
  unsetenv("HOME");
  EXPECT_ERROR(load_corpus(config, 4), ExitCode::config, "data.cache_dir: there is no home folder");
  for (int i = 0; i < 2; ++i) before[i] ? setenv(names[i], before[i]->c_str(), 1) : unsetenv(names[i]);
}

TEST_F(TextCacheTest, TextThatCanBeReadOnlyOnceIsRefused) {
  EXPECT_ERROR(load_corpus(text("-"), 4), ExitCode::data, "data.text: standard input can be read only once");
}

TEST_F(TextCacheTest, AFolderOfDocumentsWithATokenizerLearnedFromThem) {
  fs::create_directory(folder_ / "texts");
  for (int i = 0; i < 40; ++i) {
    file("texts/" + std::to_string(i) + ".txt", "the cat sat on the mat and the dog sat on the log " + std::to_string(i));
  }
  DataConfig config = text(folder_ / "texts");
  config.tokenizer = "bpe:270";
  const Corpus corpus = load_corpus(config, 8);
  EXPECT_EQ(corpus.vocab_size, 270);
  const std::string all = decoded(corpus, corpus.train) + decoded(corpus, corpus.validation);
  for (int i = 0; i < 40; ++i) EXPECT_NE(all.find("on the log " + std::to_string(i) + "<|endoftext|>"), std::string::npos) << i;
  // Bytes of text: all but the 40 end-of-texts.
  EXPECT_EQ(*text_bytes(corpus, corpus.train) + *text_bytes(corpus, corpus.validation), all.size() - 40 * 13);
  EXPECT_EQ(*text_bytes(corpus, corpus.validation), corpus.validation_bytes);
  // A run that goes on uses what it began with.
  EXPECT_EQ(load_corpus(config, 8, corpus.tokenizer->to_json()).fingerprint, corpus.fingerprint);
  EXPECT_EQ(entries(), 1);
}

TEST_F(TextCacheTest, ACacheThatCannotBeWrittenIsNamed) {
  DataConfig config = text(file("a.txt", std::string(400, 'x')));
  config.cache_dir = file("no_folder", "") + "/cache";
  EXPECT_ERROR(load_corpus(config, 4), ExitCode::disk, "set data.cache_dir to a folder with room");
}

TEST_F(TextCacheTest, ACacheThatWasChangedIsNoticed) {
  const DataConfig config = text(file("a.txt", std::string(400, 'x')));
  load_corpus(config, 4);
  const fs::path bin = fs::directory_iterator(folder_ / "cache")->path() / "tokens_bpe.bin";
  std::ofstream(bin, std::ios::binary | std::ios::app) << "xx";
  EXPECT_ERROR(load_corpus(config, 4), ExitCode::data, "tokens_bpe.bin: it holds 401 tokens, but ");
}

}  // namespace
}  // namespace gpt
