#include "gpt/core/statistics.h"

#include <gtest/gtest.h>

namespace gpt {
namespace {

TEST(Median, IsTheMiddleOrTheMeanOfTheTwoInTheMiddle) {
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({8, 1, 2, 4}), 3);
}

}  // namespace
}  // namespace gpt
