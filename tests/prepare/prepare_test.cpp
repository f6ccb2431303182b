#include "gpt/prepare/prepare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/hash.h"
#include "gpt/prepare/prepare_report.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "prepare/packed.h"
#include "src/prepare/chunk_encoder.h"
#include "support/expect_error.h"

namespace gpt::prepare {
namespace {

namespace fs = std::filesystem;

class PrepareTest : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& bytes) const { return folder_.file(name, bytes); }

  PrepareOptions options(const std::vector<std::string>& inputs, const std::string& tokenizer) const {
    PrepareOptions result;
    result.inputs = inputs;
    result.tokenizer = tokenizer;
    return result;
  }

  data::Metadata prepare(const PrepareOptions& options) const { return prepare::prepare(options, output()); }
  std::string output() const { return folder_ / "out"; }

  std::vector<int32_t> ids(int64_t begin, int64_t end) const {
    const std::string bytes = read_file(output() + "/tokens_bpe.bin", ExitCode::data);
    const data::Metadata metadata = data::read_metadata(output() + "/tokens_bpe_metadata.json");
    EXPECT_EQ(bytes.size(), (metadata.train.tokens + metadata.validation.tokens) * metadata.width_bytes);
    std::vector<int32_t> result;
    for (int64_t i = begin; i < end; ++i) {
      uint32_t id = 0;
      std::memcpy(&id, bytes.data() + i * metadata.width_bytes, metadata.width_bytes);
      result.push_back(static_cast<int32_t>(id));
    }
    return result;
  }

  std::string decoded(const std::vector<int32_t>& ids) const {
    const std::string path = output() + "/bpe_tokenizer.json";
    return tokenizer::tokenizer_from_json(read_file(path, ExitCode::data), path)->decode(ids);
  }

  std::vector<std::string> files() const {
    std::vector<std::string> names;
    if (!fs::exists(output())) return {"no folder"};
    for (const auto& entry : fs::directory_iterator(output())) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  // Lines of .jsonl whose texts are all different.
  std::string json_lines(int count) const {
    std::string lines;
    for (int i = 0; i < count; ++i) {
      lines += "{\"text\": \"document " + std::to_string(i) + std::string(i * 37 % 200, 'a' + i % 26) + ".\"}\n";
    }
    return lines;
  }

  ScratchFolder folder_;
};

TEST_F(PrepareTest, OneTextIsSplitAsNanoGptDoes) {
  const std::string text = "The quick brown fox jumps over the lazy dog\xC3\xA9.\n";
  const data::Metadata metadata = prepare(options({file("a.txt", text)}, "char"));
  const auto tokenizer = tokenizer::make_tokenizer("char", text);
  EXPECT_EQ(ids(0, 46), tokenizer->encode(text));
  EXPECT_EQ(metadata.train, (data::SplitCounts{.tokens = 41, .documents = 1, .bytes = 41}));
  EXPECT_EQ(metadata.validation, (data::SplitCounts{.tokens = 5, .documents = 0, .bytes = 6}));
  EXPECT_EQ(metadata.split, "tokens");
  EXPECT_EQ(metadata.vocab_size, tokenizer->vocab_size());
  EXPECT_EQ(metadata.tokenizer_hash, hash128(tokenizer->to_json()));
  EXPECT_EQ(metadata.sources, (std::vector<data::SourceFile>{{folder_ / "a.txt", 47}}));
  EXPECT_EQ(data::read_metadata(output() + "/tokens_bpe_metadata.json"), metadata);
  EXPECT_EQ(files(), (std::vector<std::string>{"bpe_tokenizer.json", "tokens_bpe.bin", "tokens_bpe_metadata.json"}));
}

TEST_F(PrepareTest, DocumentsEndWithEndOfText) {
  PrepareOptions o = options({file("a.txt", "one one one"), file("b.txt", "two <|endoftext|>")}, "bpe:300");
  o.validation_fraction = 0;
  const data::Metadata metadata = prepare(o);
  const std::vector<int32_t> all = ids(0, metadata.train.tokens);
  EXPECT_EQ(decoded(all), "one one one<|endoftext|>two <|endoftext|><|endoftext|>");
  EXPECT_EQ(std::count(all.begin(), all.end(), 0), 2);  // the text of a special token is ordinary text
  EXPECT_EQ(metadata.train, (data::SplitCounts{.tokens = metadata.train.tokens, .documents = 2, .bytes = 28}));
  o.parse_special_tokens = true;
  const std::vector<int32_t> parsed = ids(0, prepare(o).train.tokens);
  EXPECT_EQ(std::count(parsed.begin(), parsed.end(), 0), 3);
}

TEST_F(PrepareTest, MergesAreCountedOverAllDocuments) {
  // In one chunk: "ab" is there three times, "cd" four times.
  PrepareOptions o = options({file("a.txt", "ab ab ab"), file("b.txt", "cd cd cd cd")}, "bpe:258");
  o.validation_fraction = 0;
  prepare(o);
  EXPECT_EQ(decoded({257}), "cd");
  o.min_frequency = 5;
  EXPECT_EQ(prepare(o).vocab_size, 257);
}

TEST_F(PrepareTest, TrainingAndValidationShareNoDocument) {
  std::string lines = json_lines(2000);
  lines += lines;  // each document twice: both on the same side
  const data::Metadata metadata = prepare(options({file("a.jsonl", lines)}, "byte"));
  EXPECT_EQ(metadata.split, "documents");
  EXPECT_EQ(metadata.train.documents + metadata.validation.documents, 4000);
  EXPECT_GT(metadata.validation.documents, 250);
  EXPECT_LT(metadata.validation.documents, 550);
  const auto documents_of = [](const std::string& text) {
    std::multiset<std::string> result;
    for (size_t begin = 0, end; (end = text.find('.', begin)) != std::string::npos; begin = end + 1) {
      result.insert(text.substr(begin, end - begin));
    }
    return result;
  };
  const auto train = documents_of(decoded(ids(0, metadata.train.tokens)));
  const auto validation =
      documents_of(decoded(ids(metadata.train.tokens, metadata.train.tokens + metadata.validation.tokens)));
  EXPECT_EQ(train.size(), metadata.train.documents);
  EXPECT_EQ(validation.size(), metadata.validation.documents);
  for (const std::string& document : validation) {
    EXPECT_EQ(validation.count(document), 2);
    EXPECT_EQ(train.count(document), 0) << document;
  }
}

TEST_F(PrepareTest, TheSeedDrawsTheDocuments) {
  PrepareOptions o = options({file("a.jsonl", json_lines(2000))}, "byte");
  const std::string first = prepare(o).bin_hash;
  EXPECT_EQ(prepare(o).bin_hash, first);
  o.seed = 1;
  EXPECT_NE(prepare(o).bin_hash, first);
}

TEST_F(PrepareTest, ThreadsDoNotChangeTheOutput) {
  std::string text;
  while (text.size() < 1'500'000) text += "some words in a long document " + std::to_string(text.size()) + "\n";
  const std::vector<std::string> inputs = {file("a.jsonl", json_lines(5000)), file("b.txt", text),
                                           file("c.txt", "short")};
  for (const char* tokenizer : {"byte", "char", "bpe:400"}) {
    PrepareOptions o = options(inputs, tokenizer);
    o.threads = 1;
    const data::Metadata one = prepare(o);
    const std::string saved = read_file(output() + "/bpe_tokenizer.json", ExitCode::data);
    for (const int threads : {2, 7}) {
      o.threads = threads;
      EXPECT_EQ(prepare(o), one) << tokenizer << " on " << threads << " threads";
      EXPECT_EQ(read_file(output() + "/bpe_tokenizer.json", ExitCode::data), saved);
    }
  }
}

// A long document is encoded in parts, on several threads: its ids are those of the whole.
TEST_F(PrepareTest, PartsOfALongDocumentAreEncodedAsTheWhole) {
  std::string text;
  for (int i = 0; text.size() < 2'000'000; ++i)
    text += "w\xC3\xB6rd" + std::to_string(i * 7919) + (i % 9 == 0 ? "\n\n" : "  ");
  PrepareOptions o = options({file("a.txt", text)}, "bpe:500");
  o.validation_fraction = 0;
  const data::Metadata metadata = prepare(o);
  const std::string path = output() + "/bpe_tokenizer.json";
  std::vector<int32_t> whole = tokenizer::tokenizer_from_json(read_file(path, ExitCode::data), path)->encode(text);
  whole.push_back(0);
  EXPECT_EQ(ids(0, metadata.train.tokens), whole);
  EXPECT_EQ(metadata.invalid_utf8_bytes, 0);
}

TEST_F(PrepareTest, SpecialTokensAreNotCutInTwo) {
  std::string text;
  while (text.size() < 3'000'000) text += "<|endoftext|>";
  PrepareOptions o = options({file("a.txt", text)}, "bpe:260");
  o.parse_special_tokens = true;
  const data::Metadata metadata = prepare(o);
  EXPECT_EQ(metadata.train.tokens + metadata.validation.tokens, text.size() / 13 + 1);
  EXPECT_EQ(metadata.vocab_size, 257) << "nothing is learned from their names";
}

TEST_F(PrepareTest, InvalidUtf8IsKeptAndCounted) {
  const std::string text = "caf\xE9 \xF0\x9F\x98 \xC3\xA9 \xED\xA0\x80 end";
  const data::Metadata metadata = prepare(options({file("a.txt", text)}, "byte"));
  EXPECT_EQ(metadata.invalid_utf8_bytes, 1 + 3 + 3);
  EXPECT_EQ(decoded(ids(0, text.size())), text);
  PrepareOptions o = options({file("b.txt", std::string(600'000, 'x') + " \xE9 ")}, "char");
  EXPECT_ERROR(prepare(o), ExitCode::data, folder_ / "b.txt" + ": byte 600001: 0xE9 is not valid UTF-8");
  o.inputs = {file("c.txt", "fine"), file("d.txt", "x\xE9")};
  EXPECT_ERROR(prepare(o), ExitCode::data, folder_ / "d.txt" + ": byte 1: 0xE9 is not valid UTF-8");
  std::string records;
  for (const char* page : {"abc", "d\xE9"}) {
    records += "WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: " + std::to_string(strlen(page)) + "\r\n\r\n" +
               page + "\r\n\r\n";
  }
  o.inputs = {file("e.warc.wet", records)};
  EXPECT_ERROR(prepare(o), ExitCode::data, folder_ / "e.warc.wet" + ": document 2: 0xE9 is not valid UTF-8");
}

TEST_F(PrepareTest, WindowsTextGivesTheTokensOfTheSameTextWithLF) {
  std::string windows, text;
  for (int i = 0; i < 100'000; ++i) {
    windows += "w\xC3\xB6rd " + std::to_string(i) + "\r\n";
    text += "w\xC3\xB6rd " + std::to_string(i) + "\n";
  }
  for (const char* tokenizer : {"byte", "char", "bpe:400"}) {
    const data::Metadata expected = prepare(options({file("a.txt", text)}, tokenizer));
    const data::Metadata metadata = prepare(options({file("b.txt", "\xEF\xBB\xBF" + windows)}, tokenizer));
    EXPECT_EQ(metadata.bin_hash, expected.bin_hash) << tokenizer;
    EXPECT_EQ(metadata.tokenizer_hash, expected.tokenizer_hash) << tokenizer;
    EXPECT_EQ(metadata.train, expected.train);
    EXPECT_EQ(metadata.crlf_files, 1);
    EXPECT_EQ(metadata.byte_order_mark_files, 1);
    EXPECT_EQ(data::read_metadata(output() + "/tokens_bpe_metadata.json"), metadata);
    EXPECT_EQ(to_json(expected).find("crlf"), std::string::npos);
  }
  PrepareOptions o = options({file("c.txt", windows + "\xE9")}, "char");
  EXPECT_ERROR(prepare(o), ExitCode::data,
               "c.txt: byte " + std::to_string(windows.size()) + ": 0xE9 is not valid UTF-8");
  o.saved_tokenizer = tokenizer::make_tokenizer("char", text)->to_json();
  o.inputs = {file("d.txt", "\xEF\xBB\xBF" + windows + "x")};
  EXPECT_ERROR(prepare(o), ExitCode::data,
               "d.txt: byte " + std::to_string(windows.size() + 3) + ": 'x' (U+0078) is not in the vocab");
  o.inputs = {file("e.txt", "\xEF\xBB\xBF" + windows)};
  o.max_chars = 8;
  o.validation_fraction = 0;
  EXPECT_EQ(prepare(o).train, (data::SplitCounts{.tokens = 8, .documents = 1, .bytes = 9}));
  EXPECT_EQ(decoded(ids(0, 8)), "w\xC3\xB6rd 0\nw");
}

TEST_F(PrepareTest, CopiesWithOtherLineEndsAreOnTheSameSide) {
  for (int i = 0; i < 200; ++i) {
    const std::string line = "document " + std::to_string(i * 7919);
    file("in/" + std::to_string(i) + "a.txt", line + "\n" + line + "\n");
    file("in/" + std::to_string(i) + "b.txt", line + "\r\n" + line + "\r\n");
  }
  const data::Metadata metadata = prepare(options({folder_ / "in"}, "byte"));
  EXPECT_EQ(metadata.split, "documents");
  EXPECT_EQ(metadata.crlf_files, 200);
  EXPECT_EQ(metadata.train.documents % 2, 0);
  EXPECT_EQ(metadata.validation.documents % 2, 0);
}

TEST_F(PrepareTest, AFileInAFolderThatIsNotUtf8IsPassedOverByTokenizersThatNeedIt) {
  file("in/a.txt", "abc");
  file("in/b.txt", "def\xE9");
  file("in/c.txt", std::string(2'000'000, 'x') + "\xE9");  // found out after parts of it have been used
  file("in/d.txt", "ghi");
  PrepareOptions o = options({folder_ / "in"}, "char");
  o.validation_fraction = 0;
  const auto check = [&](const data::Metadata& metadata) {
    EXPECT_EQ(metadata.skipped, (std::vector<std::string>{folder_ / "in/b.txt", folder_ / "in/c.txt"}));
    EXPECT_EQ(metadata.sources, (std::vector<data::SourceFile>{{folder_ / "in/a.txt", 3}, {folder_ / "in/d.txt", 3}}));
    EXPECT_EQ(metadata.train, (data::SplitCounts{.tokens = 6, .documents = 2, .bytes = 6}));
    EXPECT_EQ(decoded(ids(0, 6)), "abcghi");
  };
  for (const int threads : {1, 4}) {
    o.threads = threads;
    const data::Metadata metadata = prepare(o);
    check(metadata);
    EXPECT_EQ(metadata.vocab_size, 6);  // nothing of those files is in it
  }
  o.saved_tokenizer = tokenizer::make_tokenizer("char", "abcdefghix")->to_json();
  check(prepare(o));
  file("in/d.txt", "ghij");  // its characters are another matter: the tokenizer is not for this text
  EXPECT_ERROR(
      prepare(o), ExitCode::data,
      folder_ / "in/d.txt" +
          ": byte 3: 'j' (U+006A) is not in the vocabulary of 10 characters of "
          "the char tokenizer; leave it out of the text, or begin a run with --tokenizer byte or bpe:N, which can encode any text");
  o.saved_tokenizer.clear();
  o.tokenizer = "byte";
  EXPECT_EQ(prepare(o).skipped.size(), 0);
  o.tokenizer = "char";
  o.inputs = {folder_ / "in/c.txt"};
  EXPECT_ERROR(prepare(o), ExitCode::data, folder_ / "in/c.txt" + ": byte 2000000: 0xE9 is not valid UTF-8");
}

TEST_F(PrepareTest, ADamagedFileInAFolderIsPassedOverWhole) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += std::to_string(i * 7919) + " ";
  const std::string packed = gzip(text);
  file("in/a.txt", "first");
  file("in/b.txt.gz", packed.substr(0, packed.size() - 100));
  file("in/c.txt", "last");
  for (const char* tokenizer : {"byte", "char", "bpe:258"}) {
    PrepareOptions o = options({folder_ / "in"}, tokenizer);
    o.validation_fraction = 0;
    const data::Metadata metadata = prepare(o);
    EXPECT_EQ(metadata.skipped, std::vector<std::string>{folder_ / "in/b.txt.gz"});
    EXPECT_EQ(metadata.train.bytes, 9) << tokenizer;
    o.inputs = {file("in/a.txt", "first"), file("in/c.txt", "last")};
    EXPECT_EQ(prepare(o).bin_hash, metadata.bin_hash);
    EXPECT_EQ(prepare(o).tokenizer_hash, metadata.tokenizer_hash);
    o.inputs.push_back(folder_ / "in/b.txt.gz");
    EXPECT_ERROR(prepare(o), ExitCode::data, folder_ / "in/b.txt.gz" + ": the gzip data are cut off");
  }
  EXPECT_EQ(files(), (std::vector<std::string>{"bpe_tokenizer.json", "tokens_bpe.bin", "tokens_bpe_metadata.json"}));
  fs::remove(folder_ / "in/a.txt");
  fs::remove(folder_ / "in/c.txt");
  for (const char* tokenizer : {"byte", "char", "bpe:300"})
    EXPECT_ERROR(prepare(options({folder_ / "in"}, tokenizer)), ExitCode::data,
                 "there is no text in it (files read: 0, passed over: 1)");
}

TEST(DescribeFilesTest, SaysWhatIsNotAsUsual) {
  data::Metadata metadata;
  metadata.sources.resize(1);
  EXPECT_EQ(describe_files(metadata), "");
  metadata.crlf_files = 1;
  EXPECT_EQ(describe_files(metadata), "1 file had Windows line ends (CRLF), which became LF");
  metadata.sources.resize(1200);
  EXPECT_EQ(describe_files(metadata), "1,200 files read; 1 file had Windows line ends (CRLF), which became LF");
  metadata.skipped.resize(2);
  metadata.crlf_files = 3;
  metadata.byte_order_mark_files = 2;
  EXPECT_EQ(describe_files(metadata),
            "1,200 files read, 2 passed over; 3 files had Windows line ends (CRLF), which became LF; 2 files "
            "began with a UTF-8 byte-order mark, which was dropped");
  metadata = {};
  metadata.skipped.resize(1);
  EXPECT_EQ(describe_files(metadata), "0 files read, 1 passed over");
}

TEST_F(PrepareTest, InvalidUtf8IsCountedOverAllChunksAndNotWhereTheyWereCut) {
  std::string text;
  while (text.size() < 2'000'000) text += "\xF0\x9F\x98\x80";
  for (int shift = 0; shift < 4; ++shift) {
    const std::string shifted = std::string(shift, 'x') + text;
    EXPECT_EQ(prepare(options({file("a.txt", shifted)}, "byte")).invalid_utf8_bytes, 0);
    EXPECT_EQ(prepare(options({file("a.txt", "\xFF" + shifted + "\xE9")}, "byte")).invalid_utf8_bytes, 2);
  }
}

TEST(CountInvalidUtf8Test, CountsBytesThatArePartOfNoCharacter) {
  EXPECT_EQ(count_invalid_utf8(""), 0);
  EXPECT_EQ(count_invalid_utf8("plain text that is longer than eight bytes"), 0);
  EXPECT_EQ(count_invalid_utf8("12345678\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"), 0);
  EXPECT_EQ(count_invalid_utf8("1234567\xC3"), 1);
  EXPECT_EQ(count_invalid_utf8("1234567\xF0\x9F\x98 \xE2\x82"), 5);
  EXPECT_EQ(count_invalid_utf8("\xFF\xFE\x80"
                               "abcdefgh\x80"),
            4);
}

TEST_F(PrepareTest, ASavedTokenizerThatLacksACharacterSaysWhere) {
  const std::string saved = file("saved.json", tokenizer::make_tokenizer("char", "abc")->to_json());
  EXPECT_ERROR(prepare(options({file("a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"abx\"}\n")}, saved)), ExitCode::data,
               folder_ / "a.jsonl" + ": line 2: byte 2: 'x' (U+0078) is not in the vocabulary of 3 characters");
}

// What lies on the disk as 16 bits would become another token.
class WrongTokenizer final : public tokenizer::Tokenizer {
 public:
  std::string name() const override { return "wrong"; }
  int64_t vocab_size() const override { return 3; }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override { ids.assign(text.size(), 65536); }
  std::string decode(std::span<const int32_t>) const override { return ""; }
  size_t last_cut(std::string_view) const override { return 0; }
  std::string to_json() const override { return "{}"; }
};

TEST_F(PrepareTest, IdsOutsideTheVocabularyAreNotWritten) {
  const WrongTokenizer tokenizer;
  const ChunkEncoder encoder(tokenizer, {});
  DocumentReader reader(find_sources({file("a.txt", "text")}, "").sources,
                        {.last_cut = [](std::string_view) { return size_t{0}; }, .text_field = "text"});
  const std::optional<Chunk> chunk = reader.next();
  EXPECT_ERROR(encoder.encode(*chunk, reader), ExitCode::data,
               "a.txt: byte 0: the tokenizer gave id 65536, outside its vocabulary of 3");
}

TEST_F(PrepareTest, MaxCharsIsOfTheWholeInput) {
  PrepareOptions o = options({file("a.txt", "\xC3\xA9\xC3\xA0zzzz")}, "char");
  o.max_chars = 2;
  o.validation_fraction = 0;
  EXPECT_EQ(prepare(o).train, (data::SplitCounts{.tokens = 2, .documents = 1, .bytes = 4}));
}

TEST_F(PrepareTest, RefusesWhatCannotBe) {
  const std::string a = file("a.txt", "text");
  EXPECT_ERROR(prepare(options({}, "byte")), ExitCode::config, "nothing to read");
  EXPECT_ERROR(prepare(options({a}, "bpe:many")), ExitCode::config, "as in bpe:8192");
  EXPECT_ERROR(prepare(options({a}, "bpe:100")), ExitCode::config, "100");
  EXPECT_ERROR(prepare(options({a}, "words")), ExitCode::config, "words");
  EXPECT_ERROR(prepare(options({file("b.jsonl", "{\"text\": \"\"}\n")}, "byte")), ExitCode::data,
               "b.jsonl: there is no text in it");
  EXPECT_EQ(files(), std::vector<std::string>{"no folder"});  // what was made for nothing is gone
}

TEST_F(PrepareTest, ReplacesItsOwnFilesOnly) {
  PrepareOptions o = options({file("a.txt", "text")}, "byte");
  file("out/tokens_bpe.bin", "precious");
  EXPECT_ERROR(prepare(o), ExitCode::config, "tokens_bpe.bin is in the way");
  EXPECT_EQ(read_file(output() + "/tokens_bpe.bin", ExitCode::data), "precious");
  o.force = true;
  prepare(o);
  o.force = false;
  o.inputs = {file("b.txt", "other text")};
  EXPECT_EQ(prepare(o).train.tokens, 9);
  o.format = BinFormat::nanogpt;
  EXPECT_ERROR(prepare(o), ExitCode::config, "bpe_tokenizer.json is in the way");
  o.force = true;
  prepare(o);
  EXPECT_EQ(files(), (std::vector<std::string>{"bpe_tokenizer.json", "tokens_bpe.bin", "train.bin", "val.bin"}));
}

TEST_F(PrepareTest, ALinkToNowhereIsInTheWayToo) {
  fs::create_directory(output());
  fs::create_symlink("nowhere", output() + "/tokens_bpe.bin");
  EXPECT_ERROR(prepare(options({file("a.txt", "text")}, "byte")), ExitCode::config, "tokens_bpe.bin is in the way");
}

TEST_F(PrepareTest, WhatIsPassedOverIsNamed) {
  file("in/a.txt", "text");
  file("in/empty.txt", "");
  fs::create_directory_symlink(folder_ / "in", folder_ / "in/circle");
  EXPECT_EQ(prepare(options({folder_ / "in"}, "byte")).skipped,
            (std::vector<std::string>{folder_ / "in/circle", folder_ / "in/empty.txt"}));
}

TEST_F(PrepareTest, AFolderThatWasThereStays) {
  fs::create_directory(output());
  EXPECT_ERROR(prepare(options({folder_ / "absent.txt"}, "byte")), ExitCode::data, "absent.txt");
  EXPECT_EQ(files(), std::vector<std::string>{});
}

TEST_F(PrepareTest, TextThatWillNotFitOnTheDiskIsRefusedBeforeItIsRead) {
  const std::string zeros = file("zeros.txt", "");
  std::error_code too_large;
  fs::resize_file(zeros, free_disk_space(folder_.path()), too_large);  // takes no space itself
  if (too_large) GTEST_SKIP() << "no file can be as large as the disk: " << too_large.message();
  PrepareOptions o = options({zeros}, "byte");  // two bytes for each
  EXPECT_ERROR(prepare(o), ExitCode::disk, "the ids of this input need");
  o.max_chars = 1000;
  EXPECT_ERROR(prepare(o), ExitCode::data, "byte 0 is NUL");
}

TEST_F(PrepareTest, NanoGptsBinsHoldNoWideIds) {
  std::string text;
  for (char32_t value = 0x10000; value < 0x10000 + 70000; ++value) {
    const char bytes[] = {static_cast<char>(0xF0 | value >> 18), static_cast<char>(0x80 | (value >> 12 & 0x3F)),
                          static_cast<char>(0x80 | (value >> 6 & 0x3F)), static_cast<char>(0x80 | (value & 0x3F))};
    text.append(bytes, 4);
  }
  PrepareOptions o = options({file("a.txt", text)}, "char");
  const data::Metadata metadata = prepare(o);
  EXPECT_EQ(metadata.width_bytes, 4);
  EXPECT_EQ(ids(69999, 70000)[0], 69999);
  o.format = BinFormat::nanogpt;
  o.force = true;
  EXPECT_ERROR(prepare(o), ExitCode::config, "a vocabulary of 70000 does not fit the 16-bit ids of nanogpt bins");
}

TEST_F(PrepareTest, StoppingLeavesNothing) {
  const std::string a = file("a.txt", std::string(5'000'000, 'x'));
  for (const char* tokenizer : {"byte", "char", "bpe:300"}) {
    for (const int after : {0, 1, 3}) {
      int calls = 0;
      const auto stop = [&](const PrepareProgress&) { return calls++ < after; };
      EXPECT_ERROR(prepare::prepare(options({a}, tokenizer), output(), stop), ExitCode::interrupted, "");
      EXPECT_EQ(files(), std::vector<std::string>{"no folder"}) << tokenizer << " after " << after;
    }
  }
}

TEST_F(PrepareTest, ProgressReachesTheEnd) {
  PrepareProgress last{};
  prepare::prepare(options({file("a.txt", std::string(5'000'000, 'x'))}, "byte"), output(),
                   [&](const PrepareProgress& progress) {
                     EXPECT_GE(progress.done, last.done);
                     last = progress;
                     return true;
                   });
  EXPECT_STREQ(last.stage, "encoding");
  EXPECT_EQ(last.done, 5'000'000);
  EXPECT_EQ(last.total, 5'000'000);
}

}  // namespace
}  // namespace gpt::prepare
