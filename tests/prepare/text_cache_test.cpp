// Text is prepared once and kept: what load_corpus() does with it.
#include "gpt/prepare/text_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/hash.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "prepare/corpus_fixture.h"
#include "support/captured_log.h"
#include "support/expect_error.h"

namespace gpt::prepare {
namespace {

namespace fs = std::filesystem;

class TextCacheTest : public CorpusTest {
 protected:
  std::vector<fs::path> folders() const {
    std::vector<fs::path> result;
    for (const auto& entry : fs::directory_iterator(folder_ / "cache")) {
      if (entry.is_directory()) result.push_back(entry.path());
    }
    return result;
  }
  int64_t entries() const { return std::ssize(folders()); }
  fs::path entry() const { return folders().at(0); }

  // A text that was written long ago, so that its hash is remembered.
  std::string old_file(const std::string& name, const std::string& bytes) const {
    const std::string path = file(name, bytes);
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
    return path;
  }
  std::string index() const { return folder_ / "cache/content_hashes"; }
  // What another program than this one, or a disk, made of the index: a line for every text, under a hash that is right.
  void write_index(const std::string& lines) const { std::ofstream(index()) << hash128(lines) << "\n" << lines; }
};

TEST_F(TextCacheTest, TextIsPreparedOnceForTheSameContent) {
  DataConfig config = text(file("a.txt", std::string(300, 'x') + std::string(300, 'y')));
  const std::string first = load_corpus(config, 4).fingerprint;
  EXPECT_EQ(entries(), 1);
  const fs::path bin = entry() / "tokens_bpe.bin";
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
    const data::Corpus corpus = load_corpus(config, 1);
    return decoded(corpus, corpus.train) + decoded(corpus, corpus.validation);
  };
  EXPECT_EQ(tokens(), "aaaaaaaaaabbbbbbbbbb");
  config.text_field = "body";
  EXPECT_EQ(tokens(), "ccccccccccdddddddddd");
  config.max_chars = 12;
  EXPECT_EQ(tokens(), "ccccccccccdd");
  config.text = file("a.txt", lines);  // the same bytes under a name that says otherwise
  config.max_chars = 0;
  EXPECT_EQ(tokens(), "ccccccccccdddddddddd");
  EXPECT_EQ(entries(), 6);
}

TEST_F(TextCacheTest, AnUnfinishedEntryOfTheCacheIsMadeAnew) {
  const DataConfig config = text(file("a.txt", std::string(400, 'x')));
  const std::string first = load_corpus(config, 4).fingerprint;
  fs::remove(entry() / "tokens_bpe_metadata.json");  // which is written last
  std::ofstream(entry() / "tokens_bpe.bin") << "half";
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
  for (int i = 0; i < 2; ++i) before[i] ? setenv(names[i], before[i]->c_str(), 1) : unsetenv(names[i]);
}

TEST_F(TextCacheTest, TextThatCanBeReadOnlyOnceIsRefused) {
  EXPECT_ERROR(load_corpus(text("-"), 4), ExitCode::data, "data.text: standard input can be read only once");
}

TEST_F(TextCacheTest, AFolderOfDocumentsWithATokenizerLearnedFromThem) {
  fs::create_directory(folder_ / "texts");
  for (int i = 0; i < 40; ++i) {
    file("texts/" + std::to_string(i) + ".txt",
         "the cat sat on the mat and the dog sat on the log " + std::to_string(i));
  }
  DataConfig config = text(folder_ / "texts");
  config.tokenizer = "bpe:270";
  const data::Corpus corpus = load_corpus(config, 8);
  EXPECT_EQ(corpus.vocab_size, 270);
  const std::string all = decoded(corpus, corpus.train) + decoded(corpus, corpus.validation);
  for (int i = 0; i < 40; ++i)
    EXPECT_NE(all.find("on the log " + std::to_string(i) + "<|endoftext|>"), std::string::npos) << i;
  // Bytes of text: all but the 40 end-of-texts.
  EXPECT_EQ(*data::text_bytes(corpus, corpus.train) + *data::text_bytes(corpus, corpus.validation),
            all.size() - 40 * 13);
  EXPECT_EQ(*data::text_bytes(corpus, corpus.validation), corpus.validation_bytes);
  // A run that goes on uses what it began with.
  EXPECT_EQ(load_corpus(config, 8, corpus.tokenizer->to_json()).fingerprint, corpus.fingerprint);
  EXPECT_EQ(entries(), 1);
}

TEST_F(TextCacheTest, ACacheThatCannotBeWrittenIsNamed) {
  DataConfig config = text(file("a.txt", std::string(400, 'x')));
  config.cache_dir = file("no_folder", "") + "/cache";
  EXPECT_ERROR(load_corpus(config, 4), ExitCode::disk, "set data.cache_dir to a folder that you may write to");
}

TEST_F(TextCacheTest, ADamagedEntryIsMadeAnew) {
  const std::string path = file("a.txt", std::string(400, 'x') + "yz");
  const DataConfig config = text(path);
  const std::string first = load_corpus(config, 4).fingerprint;
  const std::string bin = entry() / "tokens_bpe.bin", metadata = entry() / "tokens_bpe_metadata.json";
  const std::string tokenizer = entry() / "bpe_tokenizer.json";
  const std::string good_bin = read_file(bin, ExitCode::data), good_metadata = read_file(metadata, ExitCode::data);
  const auto spill = [](const std::string& file, const std::string& bytes) {
    std::ofstream(file, std::ios::binary) << bytes;
  };
  const auto without = [&](const std::string& part) {
    std::string result = good_metadata;
    result.erase(result.find(part), part.size());
    return result;
  };
  const auto flipped = [](std::string bytes, size_t at) {
    bytes.at(at) = static_cast<char>(bytes[at] ^ 1);
    return bytes;
  };
  const std::function<void()> damages[] = {
      [&] { spill(bin, good_bin.substr(0, 400)); },
      [&] { spill(bin, good_bin + "x"); },
      [&] { spill(bin, good_bin + "xx"); },
      [&] { spill(bin, flipped(good_bin, 100)); },  // an id of the vocabulary
      [&] { spill(bin, flipped(good_bin, 101)); },  // none of the vocabulary
      [&] { fs::remove(bin); },
      [&] { spill(metadata, good_metadata.substr(0, 100)); },
      [&] { spill(metadata, ""); },
      [&] { spill(metadata, flipped(good_metadata, good_metadata.find("tokenizer"))); },
      [&] { spill(metadata, without("\"tokenizer\": \"bpe_tokenizer.json\",")); },
      [&] { fs::remove(tokenizer); },
      [&] { spill(tokenizer, "{}"); },
      [&] { spill(tokenizer, tokenizer::make_tokenizer("char", "abc")->to_json()); },
  };
  for (size_t i = 0; i < std::size(damages); ++i) {
    SCOPED_TRACE(i);
    damages[i]();
    test::CapturedLog log;
    data::Corpus corpus;
    EXPECT_NO_THROW(corpus = load_corpus(config, 4));
    const std::string said = log.text();
    EXPECT_EQ(corpus.fingerprint, first);
    EXPECT_NE(corpus.tokenizer, nullptr);
    EXPECT_EQ(said.find("warning: "), 0u) << said;
    EXPECT_NE(said.find("; preparing " + path + " anew with the tokenizer char\n"), std::string::npos) << said;
    EXPECT_EQ(read_file(bin, ExitCode::data), good_bin);
    EXPECT_EQ(read_file(metadata, ExitCode::data), good_metadata);
    EXPECT_EQ(entries(), 1);
  }
  // A run that goes on finds it damaged too, and has its tokenizer.
  const std::string saved = load_corpus(config, 4).tokenizer->to_json();
  for (const auto& damage : damages) {
    damage();
    EXPECT_EQ(load_corpus(config, 4, saved).fingerprint, first);
  }
}

// ---- the index of hashes ----

TEST_F(TextCacheTest, TheHashOfATextIsRemembered) {
  const DataConfig config = text(old_file("a.txt", std::string(400, 'x')));
  const std::string first = load_corpus(config, 4).fingerprint;
  const std::string lines = read_file(index(), ExitCode::data).substr(33);
  ASSERT_EQ(lines.size(), 66);
  EXPECT_EQ(load_corpus(config, 4).fingerprint, first);
  EXPECT_EQ(read_file(index(), ExitCode::data).substr(33), lines);
  EXPECT_EQ(entries(), 1);
  write_index(lines.substr(0, 33) + std::string(32, '0') + "\n");  // what it says is believed
  EXPECT_EQ(load_corpus(config, 4).fingerprint, first);
  EXPECT_EQ(entries(), 2);
}

TEST_F(TextCacheTest, WhatTheFileSystemSaysAboutAnyFileIsPartOfTheIndex) {
  const std::string a = old_file("texts/a.txt", std::string(400, 'x'));
  const std::string b = old_file("texts/b.txt", std::string(400, 'y'));
  const DataConfig config = text(folder_ / "texts");
  const auto lines = [&] {
    load_corpus(config, 4);
    return read_file(index(), ExitCode::data).size() / 66;
  };
  EXPECT_EQ(lines(), 1);
  EXPECT_EQ(lines(), 1);
  const auto time = fs::last_write_time(b);
  fs::last_write_time(b, time + std::chrono::nanoseconds(1));
  EXPECT_EQ(lines(), 2);
  fs::last_write_time(b, time);
  fs::rename(b, folder_ / "texts/c.txt");
  EXPECT_EQ(lines(), 3);
  fs::copy_file(a, folder_ / "copy");  // another inode
  fs::last_write_time(folder_ / "copy", fs::last_write_time(a));
  fs::rename(folder_ / "copy", a);
  EXPECT_EQ(lines(), 4);
  old_file("texts/a.txt", std::string(400, 'z'));
  EXPECT_EQ(entries(), 1);
  EXPECT_EQ(lines(), 5);
  EXPECT_EQ(entries(), 2);
}

// It could be written again without another time. This one is always too new, however slow the test is.
TEST_F(TextCacheTest, AFileThatWasJustWrittenIsNotRemembered) {
  const std::string path = file("a.txt", std::string(400, 'x'));
  fs::last_write_time(path, fs::file_time_type::clock::now() + std::chrono::hours(1));
  load_corpus(text(path), 4);
  EXPECT_FALSE(fs::exists(index()));
  EXPECT_EQ(entries(), 1);
}

TEST_F(TextCacheTest, ADamagedIndexIsIgnored) {
  const DataConfig config = text(old_file("a.txt", std::string(400, 'x')));
  const std::string first = load_corpus(config, 4).fingerprint;
  const std::string good = read_file(index(), ExitCode::data);
  std::string wrong = good;
  wrong.back() = wrong[wrong.size() - 2];
  wrong[wrong.size() - 2] = wrong[wrong.size() - 2] == '0' ? '1' : '0';
  for (const std::string& damaged :
       {std::string(), std::string("x"), good.substr(0, 32), good.substr(0, 60), wrong, good + "more"}) {
    std::ofstream(index()) << damaged;
    EXPECT_EQ(load_corpus(config, 4).fingerprint, first);
    EXPECT_EQ(read_file(index(), ExitCode::data), good);  // and replaced
    EXPECT_EQ(entries(), 1);
  }
  write_index("lines of another form\n");
  EXPECT_EQ(load_corpus(config, 4).fingerprint, first);
  fs::remove(index());
  fs::create_directory(index());  // nothing can be remembered
  EXPECT_EQ(load_corpus(config, 4).fingerprint, first);
  fs::remove(index());
  EXPECT_EQ(entries(), 1);
}

TEST_F(TextCacheTest, TheIndexIsBounded) {
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += hash128(std::to_string(i)) + " " + std::string(32, 'a') + "\n";
  fs::create_directory(folder_ / "cache");
  write_index(lines);
  load_corpus(text(old_file("a.txt", std::string(400, 'x'))), 4);
  const std::string after = read_file(index(), ExitCode::data).substr(33);
  EXPECT_EQ(after.size(), lines.size());
  EXPECT_EQ(after.substr(0, after.size() - 66), lines.substr(66));  // the oldest went
}

// ---- the limit ----

class CacheLimitTest : public TextCacheTest {
 protected:
  // A text that takes about 2 MB in the cache; the fingerprint shows which it is.
  DataConfig large(char letter) const {
    const std::string path = folder_ / std::string(1, letter);
    DataConfig config = text(fs::exists(path) ? path : file(std::string(1, letter), std::string(1'000'000, letter)));
    config.cache_limit = 0.005;
    return config;
  }
  // The letters of the texts that are kept.
  std::string kept() const {
    std::string letters;
    for (const fs::path& entry : folders()) {
      const auto metadata = nlohmann::json::parse(read_file(entry / "tokens_bpe_metadata.json", ExitCode::data));
      letters += metadata["sources"][0]["path"].get<std::string>().back();
    }
    std::sort(letters.begin(), letters.end());
    return letters;
  }
};

TEST_F(CacheLimitTest, WhatWasUsedLongestAgoGoesFirst) {
  for (const char letter : {'a', 'b'}) load_corpus(large(letter), 4);
  EXPECT_EQ(kept(), "ab");
  load_corpus(large('a'), 4);
  load_corpus(large('c'), 4);
  EXPECT_EQ(kept(), "ac");
  DataConfig small = large('b');
  small.cache_limit = 0.001;  // less than the one that is being used
  load_corpus(small, 4);
  EXPECT_EQ(kept(), "b");
  small.cache_limit = 0;  // none
  small.text = large('c').text;
  load_corpus(small, 4);
  small.text = large('a').text;
  load_corpus(small, 4);
  EXPECT_EQ(kept(), "abc");
}

TEST_F(CacheLimitTest, WhatIsInUseStays) {
  {
    const data::Corpus a = load_corpus(large('a'), 4);
    for (const char letter : {'b', 'c', 'd'}) load_corpus(large(letter), 4);
    EXPECT_EQ(kept(), "ad");
    EXPECT_NE(clear_text_cache(large('a')).find("1 in use stays"), std::string::npos);
    EXPECT_EQ(kept(), "a");
  }
  // The texts of one run, each of which is prepared after the other.
  DataConfig config = large('a');
  config.tokenizer = "byte";
  config.cache_limit = 0.001;
  config.stages = {{0, {}, {{large('b').text, 1.0}, {large('c').text, 1.0}}}};
  load_corpus(config, 4);
  EXPECT_EQ(entries(), 3);
}

TEST_F(CacheLimitTest, WhatAnotherProcessPreparesStays) {
  load_corpus(large('a'), 4);
  const std::string lock = entry().string() + ".lock";
  const int fd = open(lock.c_str(), O_RDWR | O_CREAT, 0666);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  for (const char letter : {'b', 'c', 'd'}) load_corpus(large(letter), 4);
  EXPECT_EQ(kept(), "ad");
  close(fd);
  clear_text_cache(large('a'));
  EXPECT_EQ(entries(), 0);
  EXPECT_FALSE(fs::exists(lock));
}

TEST_F(CacheLimitTest, WhatTheCacheDidNotMakeStays) {
  load_corpus(large('a'), 4);
  const std::string inside = entry() / "notes.txt", name = std::string(32, 'a');
  for (const std::string& path :
       {inside, folder_ / "cache/" + name, folder_ / "cache/mine.bin", folder_ / "cache/folder/tokens_bpe.bin"}) {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path) << "mine";
  }
  fs::create_directory_symlink(folder_ / "cache/folder", folder_ / "cache/" + std::string(32, 'b'));
  clear_text_cache(large('a'));
  EXPECT_EQ(read_file(inside, ExitCode::data), "mine");
  EXPECT_FALSE(fs::exists(fs::path(inside).parent_path() / "tokens_bpe.bin"));
  EXPECT_EQ(read_file(folder_ / "cache/" + name, ExitCode::data), "mine");
  EXPECT_EQ(read_file(folder_ / "cache/mine.bin", ExitCode::data), "mine");
  EXPECT_EQ(read_file(folder_ / "cache/folder/tokens_bpe.bin", ExitCode::data), "mine");
}

TEST_F(CacheLimitTest, WhatKilledProcessesLeftCountsAndGoes) {
  for (const char letter : {'a', 'b'}) load_corpus(large(letter), 4);
  const fs::path left = folder_ / "cache/" + std::string(32, '0');
  fs::create_directory(left);
  fs::create_directory(left / ".gpt-prepare-unfinished");
  std::ofstream(left / ".gpt-prepare-unfinished/.tokens_bpe.bin.tmp-1-12345678") << std::string(3'000'000, 'x');
  std::ofstream(left / ".lock") << "1";
  fs::last_write_time(left, fs::file_time_type::clock::now() - std::chrono::hours(1));
  load_corpus(large('c'), 4);
  EXPECT_FALSE(fs::exists(left));
  EXPECT_EQ(kept(), "bc");
}

TEST_F(CacheLimitTest, TheCacheIsDescribed) {
  DataConfig config = large('a');
  EXPECT_EQ(describe_text_cache(config, false),
            folder_ / "cache" + ": 0 prepared texts, 0 bytes (data.cache_limit: 0.005 GB)\n");
  EXPECT_EQ(clear_text_cache(config), folder_ / "cache" + ": removed 0 prepared texts (0 bytes)");
  load_corpus(config, 4);
  file("texts/1.txt", std::string(400, 'x'));
  file("texts/2.txt", std::string(400, 'y'));
  load_corpus(text(folder_ / "texts"), 4);
  fs::create_directory(folder_ / "cache/" + std::string(32, '0'));
  fs::last_write_time(folder_ / "cache/" + std::string(32, '0'),
                      fs::file_time_type::clock::now() - std::chrono::hours(1));

  const auto list = nlohmann::json::parse(describe_text_cache(config, true))["cache"];
  ASSERT_EQ(list.size(), 3);
  EXPECT_EQ(list[0]["text"], folder_ / "texts/1.txt" + " and 1 more");
  EXPECT_EQ(list[1]["text"], folder_ / "a");
  EXPECT_GE(list[1]["bytes"], 2'000'000);
  EXPECT_EQ(list[2]["text"], "");
  for (const auto& entry : list) EXPECT_TRUE(fs::is_directory(entry["path"].get<std::string>()));

  config.cache_limit = 0;
  const std::string lines = describe_text_cache(config, false);
  EXPECT_NE(lines.find(": 3 prepared texts, 2.00 MB (data.cache_limit: none)\n"), std::string::npos) << lines;
  const std::string name = fs::path(list[1]["path"].get<std::string>()).filename();
  EXPECT_NE(lines.find("  2.00 MB  last used "), std::string::npos) << lines;
  EXPECT_NE(lines.find((folder_ / "a") + "  in " + name + "\n"), std::string::npos) << lines;
  EXPECT_NE(lines.find("(unfinished)"), std::string::npos) << lines;
  EXPECT_EQ(clear_text_cache(config), folder_ / "cache" + ": removed 3 prepared texts (2.00 MB)");
  EXPECT_EQ(entries(), 0);
}

// Whatever it is that lies there, the text can be trained on, and nothing is removed.
TEST_F(TextCacheTest, WhatLiesInThePlaceOfAnEntryIsMovedAway) {
  const DataConfig config = text(file("a.txt", std::string(300, 'x') + std::string(300, 'y')));
  const std::string fingerprint = load_corpus(config, 4).fingerprint;
  const fs::path place = entry();
  const auto put = [&](int kind) {
    fs::remove_all(place);
    if (kind == 0) file("cache/" + place.filename().string(), "a file");
    if (kind == 1) fs::create_symlink("nowhere", place);
    if (kind == 2) fs::create_directories(place / "tokens_bpe.bin/mine");
    if (kind == 3) fs::create_directories(place / "tokens_bpe_metadata.json");
    if (kind == 4) fs::create_directories(place.string() + ".lock/mine");
    if (kind == 5) fs::create_symlink("nowhere", place.string() + ".lock");
    if (kind == 6) fs::create_directories(place), mkfifo((place / "bpe_tokenizer.json").c_str(), 0600);
    if (kind == 7) fs::create_directories(place), mkfifo((place / "tokens_bpe_metadata.json").c_str(), 0600);
  };
  for (int kind = 0; kind < 8; ++kind) {
    put(kind);
    EXPECT_EQ(load_corpus(config, 4).fingerprint, fingerprint) << kind;
    EXPECT_TRUE(fs::is_regular_file(place / "tokens_bpe.bin")) << kind;
  }
  int moved = 0;
  for (const auto& found : fs::directory_iterator(folder_ / "cache"))
    moved += found.path().string().find("in-the-way") != std::string::npos;
  EXPECT_EQ(moved, 8);
}

// The cache may lie among the texts.
TEST_F(TextCacheTest, APreparedTextIsNotTextOfItsFolder) {
  file("texts/a.txt", std::string(300, 'x') + std::string(300, 'y'));
  DataConfig config = text(folder_ / "texts");
  config.cache_dir = folder_ / "texts/cache";
  const data::Corpus first = load_corpus(config, 4);
  file("texts/run/effective_config.yaml", "model:\n");
  EXPECT_EQ(load_corpus(config, 4).fingerprint, first.fingerprint);
  EXPECT_EQ(estimate_text(config).characters, 600);
  EXPECT_TRUE(estimate_text(config).is_utf8);
  file("texts/b.bin", std::string(5000, '\0'));  // what is passed over has no characters
  file("texts/c.txt", "caf\xE9");
  file("texts/d.txt", std::string((1 << 16) - 1, 'z') + "\xC3\xA9");  // the head ends within a character
  EXPECT_EQ(estimate_text(config).characters, 600 + (1 << 16) + 1);
  EXPECT_FALSE(estimate_text(config).is_utf8);
  config.tokenizer = "byte";
  EXPECT_EQ(estimate_text(config).characters, 604 + (1 << 16) + 1);
}

TEST_F(TextCacheTest, AnotherSeparatorIsAnotherText) {
  DataConfig config = text(file("a.txt", std::string(300, 'x') + "\n<|endoftext|>\n" + std::string(300, 'y')));
  config.tokenizer = "byte";
  const std::string separated = load_corpus(config, 4).fingerprint;
  config.document_separator = "none";
  EXPECT_NE(load_corpus(config, 4).fingerprint, separated);
  EXPECT_EQ(entries(), 2);
}

}  // namespace
}  // namespace gpt::prepare
