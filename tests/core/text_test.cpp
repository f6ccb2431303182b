#include "gpt/core/text.h"

#include <gtest/gtest.h>

namespace gpt {
namespace {

TEST(Text, EachOccurrenceIsReplacedOnce) {
  EXPECT_EQ(replaced("a    b", "  ", " "), "a  b");
  EXPECT_EQ(replaced("abc", "x", "y"), "abc");
  EXPECT_EQ(replaced("xx", "x", ""), "");
}

}  // namespace
}  // namespace gpt
