#include "gpt/data/token_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <stdexcept>

#include "support/expect_error.h"

namespace gpt {
namespace {

std::string file_of(const std::string& name, const std::string& bytes) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(Tokens, TakesTheNarrowestWidth) {
  EXPECT_EQ(Tokens::from_ids({0, 65535}, 65536).width(), 2);
  EXPECT_EQ(Tokens::from_ids({0, 65535}, 65536)[1], 65535);
  const Tokens wide = Tokens::from_ids({0, 65536}, 65537);
  EXPECT_EQ(wide.width(), 4);
  EXPECT_EQ(wide[1], 65536);
  EXPECT_ERROR(Tokens::from_ids({0, 65536}, 65536), ExitCode::data, "token 1 has id 65536, outside the vocabulary of 65536");
  EXPECT_ERROR(Tokens::from_ids({-1}, 10), ExitCode::data, "token 0 has id -1");
}

TEST(Tokens, MapsLittleEndianIds) {
  const std::string path = file_of("tokens_map.bin", std::string("\x01\x00\x02\x01\xFF\xFF\x00\x00", 8));
  const Tokens narrow = Tokens::map_file(path, 2);
  ASSERT_EQ(narrow.size(), 4);
  EXPECT_EQ(narrow[1], 0x0102);
  EXPECT_EQ(narrow[2], 65535);
  const Tokens wide = Tokens::map_file(path, 4);
  ASSERT_EQ(wide.size(), 2);
  EXPECT_EQ(wide[0], 0x01020001);
}

TEST(Tokens, NamesAFileThatCannotBeTokens) {
  EXPECT_ERROR(Tokens::map_file(file_of("tokens_odd.bin", "abc"), 2), ExitCode::data, "3 bytes are not a whole number of 2-byte");
  EXPECT_ERROR(Tokens::map_file(testing::TempDir() + "/none.bin", 2), ExitCode::data, "none.bin");
}

TEST(Tokens, SlicesShareTheStorage) {
  Tokens slice;
  {
    const Tokens all = Tokens::from_ids({5, 6, 7, 8}, 10);
    slice = all.slice(1, 3);
    EXPECT_EQ(static_cast<const uint16_t*>(slice.data()), static_cast<const uint16_t*>(all.data()) + 1);
    EXPECT_THROW(all.slice(2, 5), std::out_of_range);
    EXPECT_THROW(all.slice(3, 2), std::out_of_range);
  }
  ASSERT_EQ(slice.size(), 2);
  EXPECT_EQ(slice[0], 6);
  EXPECT_EQ(slice[1], 7);
}

}  // namespace
}  // namespace gpt
