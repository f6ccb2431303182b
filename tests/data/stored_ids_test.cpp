// Ids of every width, and arrays as NumPy and lit-gpt write them.
#include "src/data/stored_ids.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "data/ids_of.h"
#include "gpt/core/error.h"
#include "support/expect_error.h"

namespace gpt::data {
namespace {

template <class Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

class StoredIdsTest : public testing::Test {
 protected:
  Tokens open(const std::string& bytes, int64_t vocab_size = 0, std::optional<int> width = {}) const {
    return open_token_file(folder_.file("ids.bin", bytes), width, vocab_size).tokens;
  }
  // As numpy.lib.format writes it: padded so that the data begin at a multiple of 64.
  static std::string npy(const std::string& dict, const std::string& data, int version = 1) {
    const size_t fixed = version == 1 ? 10 : 12;
    std::string header = dict;
    while ((fixed + header.size() + 1) % 64 != 0) header += ' ';
    header += '\n';
    const std::string length = version == 1 ? bytes_of<uint16_t>({static_cast<uint16_t>(header.size())})
                                            : bytes_of<uint32_t>({static_cast<uint32_t>(header.size())});
    return "\x93NUMPY" + std::string{static_cast<char>(version), '\0'} + length + header + data;
  }
  static std::string dict(const std::string& type, const std::string& shape) {
    return "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  }

  const ScratchFolder folder_;
};

std::vector<int32_t> some_ids(int32_t below) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 300; ++i) ids.push_back(static_cast<int32_t>(int64_t{i} * 7919 % below));
  return ids;
}

TEST_F(StoredIdsTest, TheWidthIsThatOfTheVocabularyOrWhatZerosShow) {
  const std::vector<int32_t> gpt2 = some_ids(50257), large = some_ids(65793);
  const std::vector<int64_t> wide(gpt2.begin(), gpt2.end());
  EXPECT_EQ(ids_of(open(bytes_of(large), 65793)), large);
  EXPECT_EQ(ids_of(open(bytes_of(gpt2), 50257)), gpt2);
  EXPECT_EQ(ids_of(open(bytes_of(wide), 50257)), gpt2);
  EXPECT_EQ(ids_of(open(bytes_of(std::vector<int64_t>(large.begin(), large.end())), 65793)), large);
  EXPECT_EQ(ids_of(open(bytes_of(std::vector<uint16_t>(gpt2.begin(), gpt2.end())), 50257)), gpt2);
  // What the metadata say is not doubted here.
  EXPECT_EQ(open(bytes_of(gpt2), 50257, 2).size(), 600);
}

TEST_F(StoredIdsTest, ZerosShowNothingWhereTheyMayBeIds) {
  const auto width_of = [](const std::string& bytes) { return evident_width(std::as_bytes(std::span(bytes))); };
  EXPECT_EQ(width_of(std::string(1000, '\0')), 0);
  EXPECT_EQ(width_of(bytes_of(std::vector<int32_t>(31, 7))), 0);  // too few
  EXPECT_EQ(width_of(bytes_of(std::vector<int32_t>(33, 7))), 4);
  EXPECT_EQ(width_of(bytes_of(std::vector<int32_t>(33, 7)) + std::string(2, '\0')), 0);
  std::vector<uint16_t> ids(1000, 0);
  for (size_t i = 0; i < ids.size(); i += 2) ids[i] = 9;
  ids[501] = 1;
  EXPECT_EQ(width_of(bytes_of(ids)), 0);
}

TEST_F(StoredIdsTest, WhatIsNoIdStaysOutsideEveryVocabulary) {
  std::vector<int64_t> ids(100, 5);
  ids[3] = int64_t{1} << 32;
  const Tokens tokens = open(npy(dict("<i8", "(100,)"), bytes_of(ids)));
  EXPECT_EQ(static_cast<uint32_t>(tokens[3]), UINT32_MAX);
  EXPECT_EQ(first_id_outside(tokens, INT32_MAX), 3);
}

TEST_F(StoredIdsTest, ReadsArraysOfNumPy) {
  const std::vector<int32_t> ids{1, 2, 50256, 3, 4, 5};
  const auto as = [&]<class Id>(Id) { return bytes_of(std::vector<Id>(ids.begin(), ids.end())); };
  for (const int version : {1, 2, 3}) {
    EXPECT_EQ(ids_of(open(npy(dict("<u2", "(6,)"), as(uint16_t{}), version))), ids);
    EXPECT_EQ(ids_of(open(npy(dict("<i4", "(2, 3)"), as(int32_t{}), version))), ids);
  }
  EXPECT_EQ(ids_of(open(npy(dict("<u4", "(6,)"), as(uint32_t{})))), ids);
  EXPECT_EQ(ids_of(open(npy(dict("<i8", "(6,)"), as(int64_t{})))), ids);
  EXPECT_EQ(ids_of(open(npy(dict("|u1", "(3,)"), "\x01\x02\xff"))), (std::vector<int32_t>{1, 2, 255}));
  // Written by np.memmap, as OLMo's data are: nothing but ids, whatever the name says.
  EXPECT_EQ(ids_of(open_token_file(folder_.file("part.npy", as(uint16_t{}))).tokens), ids);
}

TEST_F(StoredIdsTest, RefusesArraysOfOtherThings) {
  const std::string data(24, '\1');
  const std::pair<std::string, const char*> cases[] = {
      {npy(dict("<f4", "(6,)"), data), "its numbers are '<f4'; token ids are whole numbers"},
      {npy(dict(">u2", "(12,)"), data), "with the highest byte first"},
      {npy("{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (12,), }", data), "token ids are whole numbers"},
      {npy("{'descr': '<u2', 'fortran_order': True, 'shape': (3, 4), }", data), "np.ascontiguousarray"},
      {npy(dict("<u2", "(13,)"), data), "announces 13 ids of 2 bytes, but 24 bytes follow it"},
      {npy(dict("<u2", "(99999999999999999999,)"), data), "the 'shape' in NumPy's header is damaged"},
      {npy(dict("<u2", "(4294967296, 4294967296)"), data), "the 'shape' in NumPy's header is damaged"},
      {npy("{'fortran_order': False, 'shape': (12,), }", data), "NumPy's header has no 'descr'"},
      {npy(dict("<u2", "(12,)"), data).substr(0, 40), "the file ends within NumPy's header"},
      {npy(dict("<u2", "12"), data), "NumPy's header has no 'shape'"},
  };
  for (const auto& [bytes, message] : cases) EXPECT_ERROR(open(bytes), ExitCode::data, message);
}

// HDR_MAGIC, <Q version, <B dtype, <Q chunk_size
TEST_F(StoredIdsTest, ReadsPackedFilesOfLitGpt) {
  const auto packed = [](uint8_t code, uint64_t count, const std::string& data, uint64_t version = 1) {
    return "LITPKDS" + bytes_of<uint64_t>({version}) + static_cast<char>(code) + bytes_of<uint64_t>({count}) + data;
  };
  EXPECT_EQ(ids_of(open(packed(8, 3, bytes_of<uint16_t>({1, 2, 31999})))), (std::vector<int32_t>{1, 2, 31999}));
  EXPECT_EQ(ids_of(open(packed(4, 2, bytes_of<int32_t>({1, 128000})))), (std::vector<int32_t>{1, 128000}));
  EXPECT_ERROR(open(packed(8, 4, bytes_of<uint16_t>({1, 2, 3}))), ExitCode::data,
               "announces 4 ids of 2 bytes, but 6 bytes");
  EXPECT_ERROR(open(packed(6, 1, "abcd")), ExitCode::data, "dtype code 6");
  EXPECT_ERROR(open(packed(200, 1, "abcd")), ExitCode::data, "dtype code 200");
  EXPECT_ERROR(open(packed(8, 1, "ab", 2)), ExitCode::data, "version 2");
  EXPECT_ERROR(open("LITPKDS" + std::string(5, '\1')), ExitCode::data, "ends within the header");
}

TEST_F(StoredIdsTest, WhatIsPackedIsNotTakenForIds) {
  EXPECT_ERROR(open("\x1f\x8b\x08" + std::string(101, '\1')), ExitCode::data, "it is packed with gzip");
  EXPECT_ERROR(open("\x28\xb5\x2f\xfd" + std::string(100, '\1')), ExitCode::data, "it is packed with zstd");
  EXPECT_ERROR(open("PK\x03\x04" + std::string(100, '\1'), 100, 2), ExitCode::data, "such as .npz or .pt");
  EXPECT_ERROR(open("GGUF" + std::string(100, '\1'), 100, 2), ExitCode::data, "it is a model for llama.cpp");
  EXPECT_ERROR(open(std::string("MMIDIDX\0\0\1", 10) + std::string(100, '\1'), 100, 2), ExitCode::data,
               "it is the index of Megatron's tokens");
  EXPECT_ERROR(open(std::string(257, '\1') + "ustar" + std::string(250, '\1'), 100, 2), ExitCode::data,
               "it is a tar archive");
  const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  )";
  const std::string length = {static_cast<char>(header.size()), 0, 0, 0, 0, 0, 0, 0};
  EXPECT_ERROR(open(length + header + "1234", 100, 2), ExitCode::data, "it is weights in the format safetensors");
  EXPECT_NO_THROW(open(length + "{\1" + std::string(100, '\1'), 50'000, 2)) << "ids that only begin like them";
}

// Two items of uint16 behind their number and offsets.
TEST_F(StoredIdsTest, AChunkOfLitdataIsNotTakenForIds) {
  const std::string chunk = bytes_of<uint32_t>({2, 16, 20, 26}) + bytes_of<uint16_t>({1, 2, 3, 4, 5});
  EXPECT_ERROR(open(chunk), ExitCode::data, "it is a chunk of litdata");
  EXPECT_EQ(open(chunk + std::string(2, '\1')).size(), 14);
}

}  // namespace
}  // namespace gpt::data
