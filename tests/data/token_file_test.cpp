#include "gpt/data/token_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/scratch_folder.h"
#include "data/ids_of.h"
#include "support/expect_error.h"

namespace gpt::data {
namespace {

TEST(Tokens, TakesTheNarrowestWidth) {
  EXPECT_EQ(Tokens::from_ids({0, 65535}, 65536).width(), 2);
  EXPECT_EQ(Tokens::from_ids({0, 65535}, 65536)[1], 65535);
  const Tokens wide = Tokens::from_ids({0, 65536}, 65537);
  EXPECT_EQ(wide.width(), 4);
  EXPECT_EQ(wide[1], 65536);
  EXPECT_ERROR(Tokens::from_ids({0, 65536}, 65536), ExitCode::data,
               "token 1 has id 65536, outside the vocabulary of 65536");
  EXPECT_ERROR(Tokens::from_ids({-1}, 10), ExitCode::data, "token 0 has id -1");
}

TEST(Tokens, MapsLittleEndianIds) {
  const ScratchFolder folder;
  const std::string path = folder.file("map.bin", std::string("\x01\x00\x02\x01\xFF\xFF\x00\x00", 8));
  const Tokens narrow = open_token_file(path, 2).tokens;
  ASSERT_EQ(narrow.size(), 4);
  EXPECT_EQ(narrow[1], 0x0102);
  EXPECT_EQ(narrow[2], 65535);
  const Tokens wide = open_token_file(path, 4).tokens;
  ASSERT_EQ(wide.size(), 2);
  EXPECT_EQ(wide[0], 0x01020001);
}

TEST(Tokens, NamesAFileThatCannotBeTokens) {
  const ScratchFolder folder;
  EXPECT_ERROR(open_token_file(folder.file("odd.bin", "abc"), 2), ExitCode::data,
               "3 bytes are not a whole number of 2-byte");
  EXPECT_ERROR(open_token_file(folder / "none.bin", 2), ExitCode::data, "none.bin");
}

TEST(Tokens, SlicesShareTheStorage) {
  Tokens slice;
  {
    const Tokens all = Tokens::from_ids({5, 6, 7, 8}, 10);
    slice = all.slice(1, 3);
    EXPECT_EQ(static_cast<const uint16_t*>(slice.data()), static_cast<const uint16_t*>(all.data()) + 1);
    EXPECT_THROW(all.slice(2, 5), std::out_of_range);
    EXPECT_THROW(all.slice(3, 2), std::out_of_range);
    EXPECT_THROW(all.slice(-1, 2), std::out_of_range);
  }
  ASSERT_EQ(slice.size(), 2);
  EXPECT_EQ(slice[0], 6);
  EXPECT_EQ(slice[1], 7);
}

TEST(Tokens, FirstIdOutsideTheVocabulary) {
  for (const int64_t vocab_size : {100, 70000}) {
    std::vector<int32_t> ids(10000, 99);
    EXPECT_EQ(first_id_outside(Tokens::from_ids(ids, vocab_size), 100), -1);
    for (const size_t position : {0, 4095, 4096, 9999}) {
      ids[position] = static_cast<int32_t>(vocab_size - 1);
      EXPECT_EQ(first_id_outside(Tokens::from_ids(ids, vocab_size), 99), 0);
      EXPECT_EQ(first_id_outside(Tokens::from_ids(ids, vocab_size), vocab_size - 1), vocab_size == 100 ? 0 : position);
      ids[position] = 99;
    }
  }
}

// ---- formats of other programs, written here as their own writers do ----

template <class Number>
std::string bytes_of(std::initializer_list<Number> numbers) {
  return {reinterpret_cast<const char*>(numbers.begin()), numbers.size() * sizeof(Number)};
}

std::string llmc_header(int32_t magic, int32_t version, int32_t count) {
  return bytes_of<int32_t>({magic, version, count}) + std::string(253 * 4, '\0');
}

class TokenFileTest : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& bytes) const { return folder_.file(name, bytes); }
  // A file of holes: `size` bytes that take no space, with `bytes` at some offsets.
  std::string sparse(const std::string& name, int64_t size,
                     const std::vector<std::pair<int64_t, std::string>>& pieces) const {
    const std::string path = file(name, "");
    EXPECT_EQ(truncate(path.c_str(), size), 0);
    std::fstream out(path, std::ios::binary | std::ios::in | std::ios::out);
    for (const auto& [offset, bytes] : pieces) out.seekp(offset) << bytes;
    return path;
  }
  // Sequences {1, 2}, {3}, {4, 5, 6} of uint16, of two documents.
  struct Megatron {
    std::string magic{"MMIDIDX\0\0", 9};
    uint64_t version = 1, sequences = 3, documents = 3;
    uint8_t dtype = 8;
    std::string lengths = bytes_of<int32_t>({2, 1, 3}), pointers = bytes_of<int64_t>({0, 4, 6}),
                marks = bytes_of<int64_t>({0, 2, 3});
    std::string bin = bytes_of<uint16_t>({1, 2, 3, 4, 5, 6});
  };
  std::string megatron(const Megatron& m) const {
    file("m.idx", m.magic + bytes_of({m.version}) + bytes_of({m.dtype}) + bytes_of({m.sequences, m.documents}) +
                      m.lengths + m.pointers + m.marks);
    return file("m.bin", m.bin);
  }

  const ScratchFolder folder_;
};

TEST_F(TokenFileTest, RawIdsAre16BitsUnlessTheMetadataSaysOtherwise) {
  const std::string path = file("raw.bin", bytes_of<uint16_t>({7, 0, 9, 0}));
  EXPECT_EQ(open_token_file(path).format, TokenFormat::raw);
  EXPECT_EQ(ids_of(open_token_file(path).tokens), (std::vector<int32_t>{7, 0, 9, 0}));
  EXPECT_EQ(ids_of(open_token_file(path, 4).tokens), (std::vector<int32_t>{7, 9}));
}

// Any two letters are an id below GPT-2's vocabulary: a run would learn nonsense and look well.
TEST_F(TokenFileTest, ATextIsNotTakenForIds) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "To be, or not to be:\tthat is the question\n";
  EXPECT_ERROR(open_token_file(file("text.bin", text)), ExitCode::data, "text.bin: is text, not token ids; ");
  EXPECT_ERROR(open_token_file(file("text.bin", text), 4), ExitCode::data, "(--data FILE)");
  text[2000] = '\0';
  EXPECT_EQ(open_token_file(file("ids.bin", text)).format, TokenFormat::raw);
}

TEST_F(TokenFileTest, LlmcHeadersTellTheWidth) {
  const std::string gpt2 = file("gpt2.bin", llmc_header(20240520, 1, 3) + bytes_of<uint16_t>({50256, 1, 2}));
  EXPECT_EQ(open_token_file(gpt2).format, TokenFormat::llmc);
  EXPECT_EQ(ids_of(open_token_file(gpt2).tokens), (std::vector<int32_t>{50256, 1, 2}));
  const std::string llama3 = file("llama3.bin", llmc_header(20240801, 7, 2) + bytes_of<uint32_t>({128000, 5}));
  EXPECT_EQ(ids_of(open_token_file(llama3).tokens), (std::vector<int32_t>{128000, 5}));
  EXPECT_EQ(open_token_file(file("none.bin", llmc_header(20240520, 1, 0))).tokens.size(), 0);
  EXPECT_ERROR(open_token_file(llama3, 2), ExitCode::data,
               "llama3.bin: its header says ids of 32 bits, but its metadata says 16 bits");
}

TEST_F(TokenFileTest, LlmcHeadersAreCheckedAgainstTheFile) {
  for (const char* more : {"x", "xxxx"}) {
    const std::string path = file("long.bin", llmc_header(20240520, 1, 3) + bytes_of<uint16_t>({1, 2, 3}) + more);
    EXPECT_ERROR(open_token_file(path), ExitCode::data,
                 "long.bin: byte 8: the header announces 3 tokens of 2 bytes, but ");
  }
  const std::string cut = file("cut.bin", llmc_header(20240801, 7, 3) + bytes_of<uint32_t>({1, 2}));
  EXPECT_ERROR(open_token_file(cut), ExitCode::data, "3 tokens of 4 bytes, but 8 bytes follow");
  const std::string version = file("version.bin", llmc_header(20240520, 7, 0));
  EXPECT_ERROR(open_token_file(version), ExitCode::data, "version.bin: byte 4: version 7");
}

TEST_F(TokenFileTest, MegatronSequencesInTheirOrder) {
  EXPECT_EQ(open_token_file(megatron({})).format, TokenFormat::megatron);
  EXPECT_EQ(ids_of(open_token_file(megatron({})).tokens), (std::vector<int32_t>{1, 2, 3, 4, 5, 6}));
  Megatron reordered;
  reordered.lengths = bytes_of<int32_t>({3, 1, 2}), reordered.pointers = bytes_of<int64_t>({6, 4, 0});
  EXPECT_EQ(ids_of(open_token_file(megatron(reordered)).tokens), (std::vector<int32_t>{4, 5, 6, 3, 1, 2}));
  Megatron partial;  // the last sequence was left out
  partial.sequences = 2, partial.documents = 2;
  partial.lengths = bytes_of<int32_t>({2, 1}), partial.pointers = bytes_of<int64_t>({0, 4}),
  partial.marks = bytes_of<int64_t>({0, 2});
  EXPECT_EQ(ids_of(open_token_file(megatron(partial)).tokens), (std::vector<int32_t>{1, 2, 3}));
  Megatron empty;  // sequences, one of them at the very end
  empty.sequences = 5;
  empty.lengths = bytes_of<int32_t>({2, 0, 1, 3, 0}), empty.pointers = bytes_of<int64_t>({0, 4, 4, 6, 12});
  EXPECT_EQ(ids_of(open_token_file(megatron(empty)).tokens), (std::vector<int32_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(open_token_file(file("m.ids", bytes_of<uint16_t>({7}))).format,
            TokenFormat::raw);  // m.idx is another file's
  Megatron wide;
  wide.dtype = 4, wide.bin = bytes_of<int32_t>({1, 2, 3, 4, 5, 70000}), wide.pointers = bytes_of<int64_t>({0, 8, 12});
  EXPECT_EQ(ids_of(open_token_file(megatron(wide)).tokens), (std::vector<int32_t>{1, 2, 3, 4, 5, 70000}));
  EXPECT_ERROR(open_token_file(megatron(wide), 2), ExitCode::data, "m.bin: its header says ids of 32 bits");
}

TEST_F(TokenFileTest, MegatronIndicesAreCheckedBeforeTheyAreUsed) {
  const auto refused = [this](const std::string& why, const std::function<void(Megatron&)>& spoil) {
    Megatron m;
    spoil(m);
    EXPECT_ERROR(open_token_file(megatron(m)), ExitCode::data, "m.idx: " + why);
  };
  refused("byte 0: not an index", [](Megatron& m) { m.magic[0] = 'X'; });
  file("m.idx", std::string("MMIDIDX\0\0", 9) + bytes_of<uint64_t>({1}) + "\x08");  // ends within the header
  EXPECT_ERROR(open_token_file(folder_ / "m.bin"), ExitCode::data, "m.idx: byte 0: not an index");
  refused("byte 9: version 2", [](Megatron& m) { m.version = 2; });
  refused("byte 17: dtype code 1", [](Megatron& m) { m.dtype = 1; });
  refused("byte 18: 4 sequences and 3 document marks do not take the 60 bytes", [](Megatron& m) { m.sequences = 4; });
  refused("byte 18: 3074457345618258605 sequences",
          [](Megatron& m) { m.sequences = 3074457345618258605u; });  // x 12 wraps round
  refused("byte 18: 3 sequences and 18446744073709551615", [](Megatron& m) { m.documents = ~uint64_t{0}; });
  refused("sequence 1 has a length of -1", [](Megatron& m) { m.lengths = bytes_of<int32_t>({2, -1, 3}); });
  refused("sequence 2 lies at byte 6 with 4 tokens", [](Megatron& m) { m.lengths = bytes_of<int32_t>({2, 1, 4}); });
  refused("sequence 1 lies at byte 3", [](Megatron& m) { m.pointers = bytes_of<int64_t>({0, 3, 6}); });
  refused("sequence 1 lies at byte -4", [](Megatron& m) { m.pointers = bytes_of<int64_t>({0, -4, 6}); });
  refused("sequence 1 lies at byte 9223372036854775806",
          [](Megatron& m) { m.pointers = bytes_of<int64_t>({0, INT64_MAX - 1, 6}); });
  refused("sequence 1 overlaps others: up to it they have 14 bytes, but the bin has 12", [](Megatron& m) {
    m.lengths = bytes_of<int32_t>({6, 1, 3});
    m.pointers = bytes_of<int64_t>({0, 0, 6});
  });
  refused("document mark 0 is 1", [](Megatron& m) { m.marks = bytes_of<int64_t>({1, 2, 3}); });
  refused("document mark 2 is 1", [](Megatron& m) { m.marks = bytes_of<int64_t>({0, 2, 1}); });
  refused("document mark 2 is 4", [](Megatron& m) { m.marks = bytes_of<int64_t>({0, 2, 4}); });
}

// Positions around 2^31 and 2^32, in tokens and in bytes, of files that take no space on the disk.
TEST_F(TokenFileTest, FilesBeyond32Bits) {
  const int64_t edges[] = {(int64_t{1} << 30) - 1, int64_t{1} << 30, (int64_t{1} << 31) - 1, int64_t{1} << 31,
                           (int64_t{1} << 32) - 1, int64_t{1} << 32, (int64_t{1} << 32) + 5};
  for (const int width : {2, 4}) {
    std::vector<std::pair<int64_t, std::string>> pieces;
    for (const int64_t edge : edges)
      pieces.emplace_back(edge * width, std::string(1, static_cast<char>(1 + pieces.size())));
    const int64_t size = (int64_t{1} << 32) + 6;
    const Tokens tokens = open_token_file(sparse("large.bin", size * width, pieces), width).tokens;
    ASSERT_EQ(tokens.size(), size);
    for (size_t i = 0; i < std::size(edges); ++i) EXPECT_EQ(tokens[edges[i]], 1 + i) << edges[i];
    const Tokens end = tokens.slice(int64_t{1} << 32, size);
    EXPECT_EQ(end[5], 7);
    EXPECT_EQ(first_id_outside(end, 7), 5);
  }
  // llm.c's, with more tokens than its own int32 counts.
  const auto count = static_cast<uint32_t>((int64_t{1} << 31) + 5);
  const std::string header = llmc_header(20240520, 1, static_cast<int32_t>(count));
  EXPECT_EQ(open_token_file(sparse("llmc.bin", 1024 + 2 * int64_t{count}, {{0, header}})).tokens.size(), count);
  // Megatron's, with one sequence that starts beyond 4 GB.
  const int64_t start = int64_t{5} << 30;
  Megatron m;
  m.sequences = 1, m.documents = 2;
  m.lengths = bytes_of<int32_t>({2}), m.pointers = bytes_of({start}), m.marks = bytes_of<int64_t>({0, 1});
  megatron(m);
  const std::string path = sparse("m.bin", start + 4, {{start, bytes_of<uint16_t>({11, 12})}});
  EXPECT_EQ(ids_of(open_token_file(path).tokens), (std::vector<int32_t>{11, 12}));
}

}  // namespace
}  // namespace gpt::data
