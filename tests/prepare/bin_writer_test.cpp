#include "src/prepare/bin_writer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/prepare/prepare.h"
#include "support/expect_error.h"

namespace gpt::prepare {
namespace {

// A document of `tokens` ids, all `id`; each id stands for `id` bytes.
EncodedChunk document(int64_t tokens, uint16_t id, bool validation) {
  EncodedChunk chunk;
  for (int64_t i = 0; i < tokens; ++i) chunk.ids.append(reinterpret_cast<const char*>(&id), sizeof id);
  chunk.parts.push_back({.tokens = tokens, .bytes = tokens * id, .last = true, .validation = validation});
  return chunk;
}

std::vector<int32_t> identity(int32_t size) {
  std::vector<int32_t> values(size);
  for (int32_t i = 0; i < size; ++i) values[i] = i;
  return values;
}

template <class Id = uint16_t>
std::vector<int> ids_in(const std::string& path, size_t header = 0) {
  std::string bytes = read_file(path, ExitCode::data);
  std::vector<int> ids;
  for (size_t i = header; i + sizeof(Id) <= bytes.size(); i += sizeof(Id)) {
    Id id;
    std::memcpy(&id, bytes.data() + i, sizeof id);
    ids.push_back(static_cast<int>(id));
  }
  return ids;
}

TEST(BinWriterTest, FewDocumentsAreSplitByTokensFromTheEnd) {
  const ScratchFolder folder;
  BinWriter writer(folder.path(), BinFormat::prepared, 2, 0.25);
  writer.append(document(3, 1, true));
  writer.append(document(2, 2, false));
  writer.append(document(5, 3, true));
  data::Metadata metadata;
  writer.finish(identity(10), metadata);
  writer.commit();
  EXPECT_EQ(ids_in(folder / "tokens_bpe.bin"), (std::vector{1, 1, 1, 2, 2, 3, 3, 3, 3, 3}));
  EXPECT_EQ(metadata.split, "tokens");
  EXPECT_EQ(metadata.train, (data::SplitCounts{.tokens = 7, .documents = 3, .bytes = 13}));
  EXPECT_EQ(metadata.validation, (data::SplitCounts{.tokens = 3, .documents = 0, .bytes = 9}));
  EXPECT_EQ(metadata.bin_hash, hash128(read_file(folder / "tokens_bpe.bin", ExitCode::data)));
}

TEST(BinWriterTest, ManyDocumentsAreSplitAsTheyWereDrawn) {
  const ScratchFolder folder;
  BinWriter writer(folder.path(), BinFormat::prepared, 2, 0.5);  // 20 documents are enough
  std::vector<int> train, validation;
  for (int i = 0; i < 50; ++i) {
    const bool drawn = i % 3 == 0;
    writer.append(document(1 + i % 4, i, drawn));
    for (int k = 0; k < 1 + i % 4; ++k) (drawn ? validation : train).push_back(i);
  }
  data::Metadata metadata;
  writer.finish(identity(50), metadata);
  writer.commit();
  EXPECT_EQ(metadata.split, "documents");
  EXPECT_EQ(metadata.train.documents, 33);
  EXPECT_EQ(metadata.validation.documents, 17);
  EXPECT_EQ(metadata.train.tokens, train.size());
  std::vector<int> all = train;
  all.insert(all.end(), validation.begin(), validation.end());
  EXPECT_EQ(ids_in(folder / "tokens_bpe.bin"), all);
  EXPECT_EQ(metadata.bin_hash, hash128(read_file(folder / "tokens_bpe.bin", ExitCode::data)));
}

TEST(BinWriterTest, DocumentsThatAreAllAlikeAreSplitByTokens) {
  for (const bool drawn : {false, true}) {
    const ScratchFolder folder;
    BinWriter writer(folder.path(), BinFormat::nanogpt, 2, 0.1);
    for (int i = 0; i < 200; ++i) writer.append(document(5, 7, drawn));
    data::Metadata metadata;
    writer.finish(identity(8), metadata);
    writer.commit();
    EXPECT_EQ(metadata.split, "tokens");
    EXPECT_EQ(metadata.train, (data::SplitCounts{.tokens = 900, .documents = 180, .bytes = 6300}));
    EXPECT_EQ(metadata.validation, (data::SplitCounts{.tokens = 100, .documents = 20, .bytes = 700}));
    EXPECT_EQ(ids_in(folder / "train.bin"), std::vector(900, 7));
    EXPECT_EQ(ids_in(folder / "val.bin"), std::vector(100, 7));
  }
}

TEST(BinWriterTest, TheSmallerSideIsWorthTenDocuments) {
  for (const auto& [fraction, needed] : {std::pair{0.5, 20}, {0.25, 40}, {0.75, 40}}) {
    for (const int count : {needed - 1, needed}) {
      const ScratchFolder folder;
      BinWriter writer(folder.path(), BinFormat::prepared, 2, fraction);
      for (int i = 0; i < count; ++i) writer.append(document(1, 1, i % 2 == 0));
      data::Metadata metadata;
      writer.finish(identity(2), metadata);
      EXPECT_EQ(metadata.split, count < needed ? "tokens" : "documents") << count << " for " << fraction;
    }
  }
}

TEST(BinWriterTest, PartsOfADocumentAreOneDocument) {
  for (const int count : {8, 50}) {
    const ScratchFolder folder;
    BinWriter writer(folder.path(), BinFormat::prepared, 2, 0.5);
    for (int i = 0; i < count; ++i) {
      for (const bool last : {false, false, true}) {
        EncodedChunk part = document(1, 1, i % 5 == 0);
        part.parts[0].last = last;
        writer.append(part);
      }
    }
    data::Metadata metadata;
    writer.finish(identity(2), metadata);
    EXPECT_EQ(metadata.split, count == 8 ? "tokens" : "documents");
    EXPECT_EQ(metadata.train.documents, count == 8 ? 4 : 40);
    EXPECT_EQ(metadata.validation.documents, count == 8 ? 4 : 10);
  }
}

TEST(BinWriterTest, SplitsWhatIsLongerThanItsBuffer) {
  const ScratchFolder folder;
  BinWriter writer(folder.path(), BinFormat::nanogpt, 2, 0.5);
  writer.append(document(2'000'000, 3, false));
  data::Metadata metadata;
  writer.finish(identity(4), metadata);
  writer.commit();
  EXPECT_EQ(metadata.validation.bytes, 3'000'000);
  EXPECT_EQ(ids_in(folder / "train.bin").size(), 1'000'000u);
  EXPECT_EQ(ids_in(folder / "val.bin").size(), 1'000'000u);
}

TEST(BinWriterTest, WritesNanoGptsFiles) {
  const ScratchFolder folder;
  BinWriter writer(folder.path(), BinFormat::nanogpt, 2, 0.2);
  for (int i = 0; i < 10; ++i) writer.append(document(1, i, false));
  data::Metadata metadata;
  writer.finish(identity(10), metadata);
  writer.commit();
  EXPECT_EQ(ids_in(folder / "train.bin"), (std::vector{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(ids_in(folder / "val.bin"), (std::vector{8, 9}));
}

TEST(BinWriterTest, WritesTheHeaderOfLlmC) {
  const ScratchFolder folder;
  BinWriter writer(folder.path(), BinFormat::llmc, 4, 0.2);
  EncodedChunk chunk;
  for (uint32_t id = 100000; id < 100010; ++id) chunk.ids.append(reinterpret_cast<const char*>(&id), sizeof id);
  chunk.parts.push_back({.tokens = 10, .bytes = 10});
  writer.append(chunk);
  data::Metadata metadata;
  writer.finish(std::vector<int32_t>(100010, 1), metadata);
  writer.commit();
  const auto header = ids_in<int32_t>(folder / "train.bin");
  ASSERT_EQ(header.size(), 256 + 8);
  EXPECT_EQ(header[0], 20240801);
  EXPECT_EQ(header[1], 7);
  EXPECT_EQ(header[2], 8);
  EXPECT_EQ(header[3], 0);
  EXPECT_EQ(header[256], 100000);
  EXPECT_EQ(ids_in<uint32_t>(folder / "val.bin", 1024), (std::vector{100008, 100009}));
}

TEST(BinWriterTest, ReadingBackCanBeStopped) {
  struct Stop {};
  for (const BinFormat format : {BinFormat::prepared, BinFormat::nanogpt}) {
    const ScratchFolder folder;
    {
      BinWriter writer(folder.path(), format, 2, 0.5, [] { throw Stop(); });
      writer.append(document(1000, 1, false));
      data::Metadata metadata;
      EXPECT_THROW(writer.finish(identity(2), metadata), Stop);
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
}

TEST(BinWriterTest, NothingHasItsNameBeforeCommit) {
  const ScratchFolder folder;
  {
    BinWriter writer(folder.path(), BinFormat::nanogpt, 2, 0);
    writer.append(document(3'000'000, 1, false));
    data::Metadata metadata;
    writer.finish(identity(2), metadata);
    EXPECT_EQ(metadata.validation.tokens, 0);
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      EXPECT_TRUE(entry.path().filename().string().starts_with('.')) << entry.path();
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

std::string repeated(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

TEST(TrainingSideTest, AVocabularyIsLearnedFromItAlone) {
  const ScratchFolder folder;
  PrepareOptions o;
  o.tokenizer = "bpe:300";
  const auto learned = [&](const std::string& word) {  // behind a space, which the vocabulary has as G with a dot
    const std::string tokens = read_file(folder / "out/bpe_tokenizer.json", ExitCode::data);
    return tokens.find("\"\u0120" + word + "\"") != std::string::npos;
  };
  o.inputs = {folder.file("a.txt", repeated(" seen", 900) + repeated(" held", 100))};
  prepare(o, folder / "out");
  EXPECT_TRUE(learned("seen"));
  EXPECT_FALSE(learned("held")) << "the end of a text is for validation";
  o.validation_fraction = 0;
  prepare(o, folder / "out");
  EXPECT_TRUE(learned("held"));

  // As many words as there are documents: those of one side are no tokens.
  std::string lines;
  const auto word = [](int i) { return std::string(1, 'a' + i % 26) + std::string(1, 'a' + i / 26 % 26) + "q"; };
  for (int i = 0; i < 300; ++i) lines += "{\"text\": \"" + repeated(" " + word(i), 20) + "\"}\n";
  o.inputs = {folder.file("b.jsonl", lines)}, o.tokenizer = "bpe:2000", o.validation_fraction = 0.1;
  const data::Metadata metadata = prepare(o, folder / "out");
  ASSERT_EQ(metadata.split, "documents");
  int64_t words = 0;
  for (int i = 0; i < 300; ++i) words += learned(word(i));
  EXPECT_EQ(words, metadata.train.documents);
}

}  // namespace
}  // namespace gpt::prepare
