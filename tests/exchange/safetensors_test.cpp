// Files of safetensors, made by hand from the format's description. Every hostile one was read without an error before its check existed.
#include "gpt/exchange/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "support/expect_error.h"

namespace gpt::exchange {
namespace {

std::string file_of(const std::string& header, const std::string& values) {
  const uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + header + values;
}

std::string_view text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

class SafetensorsTest : public testing::Test {
 protected:
  std::string written(const std::string& header, const std::string& values) {
    return folder_.file("a.safetensors", file_of(header, values));
  }
  void expect_refused(const std::string& header, const std::string& values, const std::string& part) {
    const std::string path = written(header, values);
    EXPECT_ERROR(SafetensorsReader(path), ExitCode::checkpoint, part);
    EXPECT_ERROR(SafetensorsReader(path), ExitCode::checkpoint, path + " cannot be used: ");
  }

  const ScratchFolder folder_;
};

TEST_F(SafetensorsTest, TensorsAreFoundByTheirNamesWhereverTheyLie) {
  const SafetensorsReader file(written(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},)"
      R"("a":{"dtype":"U8","shape":[1,3],"data_offsets":[4,7]},"none":{"dtype":"F32","shape":[0,9],"data_offsets":[4,4]},)"
      R"("scalar":{"dtype":"BF16","shape":[],"data_offsets":[7,9]}}  )",
      "1234abcXY"));
  ASSERT_EQ(file.tensors().size(), 4);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[0].dtype, "U8");
  EXPECT_EQ(file.tensors()[0].shape, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(text(file.find("a")->bytes), "abc");
  EXPECT_EQ(text(file.find("b")->bytes), "1234");
  EXPECT_EQ(text(file.find("none")->bytes), "");
  EXPECT_EQ(text(file.find("scalar")->bytes), "XY");
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
}

TEST_F(SafetensorsTest, WhatIsNoSafetensorsFileIsRefused) {
  const auto refused = [&](const std::string& content, const std::string& part) {
    const std::string path = folder_.file("b.safetensors", content);
    EXPECT_ERROR(SafetensorsReader(path), ExitCode::checkpoint, part);
  };
  refused("", "it has 0 bytes, and a safetensors file at least 8");
  refused("1234567", "it has 7 bytes");
  refused("version https://git-lfs.github.com/spec/v1\n", "it is a git-lfs pointer");
  refused("<!DOCTYPE html><html>", "it is no safetensors file: its header would have");
  refused(std::string("\x00\xE1\xF5\x05\0\0\0\0", 8), "its header has 100000000 bytes, and the file ends after 0");
  refused(std::string("\x01\xE1\xF5\x05\0\0\0\0", 8), "its header would have 100000001 bytes");
  refused(std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8) + "{}",
          "its header would have 18446744073709551615 bytes");
  EXPECT_ERROR(SafetensorsReader(folder_ / "missing"), ExitCode::checkpoint, "No such file");
}

TEST_F(SafetensorsTest, HeadersThatAreNotOnesAreRefused) {
  expect_refused("{", "", "its header is not JSON");
  expect_refused("{} x", "", "its header is not JSON");
  expect_refused(R"({"a)"
                 "\xFF"
                 R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                 "1", "its header is not JSON");
  expect_refused("[]", "", "its header is array; an object is needed");
  expect_refused(std::string(5000, '[') + std::string(5000, ']'), "", "nested more than 3 levels deep");
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
      "1", "its header names tensor 'a' twice");
  expect_refused(R"({"__metadata__":[]})", "", "its __metadata__ is []");
  expect_refused(R"({"__metadata__":{"format":1}})", "", "its __metadata__ has 1 under 'format'");
}

TEST_F(SafetensorsTest, TensorsThatAreNotDescribedAreRefused) {
  const auto refused = [&](const std::string& entry, const std::string& part) {
    expect_refused("{\"a\\n\\u001b\":" + entry + "}", "1234", part);
  };
  refused("7", "tensor 'a\\x0a\\x1b' is 7; dtype, shape and data_offsets are needed");
  refused(R"({"dtype":"U8","shape":[4]})", "dtype, shape and data_offsets are needed");
  refused(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4],"more":1})", "dtype, shape and data_offsets are needed");
  refused(R"({"dtype":"F7","shape":[4],"data_offsets":[0,4]})", "has the unknown dtype \"F7\"");
  refused(R"({"dtype":7,"shape":[4],"data_offsets":[0,4]})", "has the unknown dtype 7");
  refused(R"({"dtype":"U8","shape":4,"data_offsets":[0,4]})", "shape of tensor 'a\\x0a\\x1b' is 4; a list is needed");
  refused(R"({"dtype":"U8","shape":[4.0],"data_offsets":[0,4]})", "has 4.0 where a whole number is needed");
  refused(R"({"dtype":"U8","shape":["4"],"data_offsets":[0,4]})", "has \"4\" where a whole number is needed");
  refused(R"({"dtype":"U8","shape":[-2,-2],"data_offsets":[0,4]})", "has -2 where a whole number is needed");
  refused(R"({"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,4]})",
          "has a dimension of 18446744073709551615");
  refused(R"({"dtype":"U8","shape":[4],"data_offsets":4})",
          "data_offsets of tensor 'a\\x0a\\x1b' is 4; a list is needed");
  refused(R"({"dtype":"U8","shape":[4],"data_offsets":[0,2,4]})", "is [0,2,4]; two are needed");
}

TEST_F(SafetensorsTest, OffsetsThatDoNotFitAreRefused) {
  const auto refused = [&](const std::string& entries, const std::string& part) {
    expect_refused("{" + entries + "}", "12345678", part);
  };
  const auto entry = [](const std::string& name, const std::string& shape, const std::string& offsets) {
    return "\"" + name + R"(":{"dtype":"F32","shape":[)" + shape + R"(],"data_offsets":[)" + offsets + "]}";
  };
  refused(entry("a", "3", "0,12"), "tensor 'a' lies from byte 0 to 12 of 8");
  refused(entry("a", "2", "8,0"), "tensor 'a' lies from byte 8 to 0 of 8");
  refused(entry("a", "1", "0,8"), "tensor 'a' has 8 bytes, which cannot be F32 of shape [1]");
  // Its size is 8 bytes modulo 2 to the power of 64, and nothing modulo that.
  refused(entry("a", "4611686018427387906", "0,8"), "cannot be F32 of shape");
  refused(entry("a", "4611686018427387904,4", "0,0") + "," + entry("b", "2", "0,8"), "cannot be F32 of shape");
  refused(entry("a", "1", "4,8"), "tensor 'a' begins at byte 4 instead of 0: tensors overlap or leave a gap");
  refused(entry("a", "2", "0,8") + "," + entry("b", "1", "4,8"), "tensor 'b' begins at byte 4 instead of 8");
  refused(entry("a", "2", "0,8") + "," + entry("b", "2", "0,8"), "tensor 'b' begins at byte 0 instead of 8");
  refused(entry("a", "1", "0,4"), "its tensors end at byte 4, and its values at 8");
  refused("", "its tensors end at byte 0, and its values at 8");
}

TEST_F(SafetensorsTest, AFileIsWrittenAsTheFormatSays) {
  const std::string path = folder_ / "new.safetensors";
  SafetensorsWriter file(path, {{"a", "F32", {1, 2}}, {"b.\"c\"", "BF16", {3}}});
  file.add(bytes("12345678"));
  file.add(bytes("abcdef"));
  EXPECT_EQ(slurp(path), "") << "it appears when it is complete";
  file.commit();
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
      R"("b.\"c\"":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(slurp(path), file_of(padded, "12345678abcdef"));
  const SafetensorsReader read(path);
  EXPECT_EQ(text(read.find("b.\"c\"")->bytes), "abcdef");
}

TEST_F(SafetensorsTest, AFileThatIsNotFinishedIsNotThere) {
  {
    SafetensorsWriter file(folder_ / "new.safetensors", {{"a", "F32", {1}}});
    EXPECT_THROW(file.add(bytes("12345")), std::logic_error);
    EXPECT_THROW(file.commit(), std::logic_error);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

}  // namespace
}  // namespace gpt::exchange
