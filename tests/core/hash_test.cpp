#include "gpt/core/hash.h"

#include <gtest/gtest.h>

#include <string>

namespace gpt {
namespace {

TEST(Hash128Test, IsXxh3) {
  EXPECT_EQ(hash128(""), "99aa06d3014798d86001c324468d497f");  // the value that xxHash publishes for no bytes
  EXPECT_EQ(Hash128().hex(), hash128(""));
}

TEST(Hash128Test, DoesNotSeeThePieces) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += std::to_string(i);
  Hash128 pieces;
  for (size_t i = 0; i < text.size(); i += 7) pieces.update(std::string_view(text).substr(i, 7));
  EXPECT_EQ(pieces.hex(), hash128(text));
  pieces.update("x");
  EXPECT_NE(pieces.hex(), hash128(text));
  Hash128 moved = std::move(pieces);
  EXPECT_EQ(moved.hex(), hash128(text + "x"));
}

}  // namespace
}  // namespace gpt
