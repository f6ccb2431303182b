#include "gpt/core/statistics.h"

#include <gtest/gtest.h>

namespace gpt {
namespace {

TEST(Median, IsTheMiddleOrTheMeanOfTheTwoInTheMiddle) {
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({8, 1, 2, 4}), 3);
}

TEST(StudentT, FallsWithTheDegreesOfFreedomAndThenStays) {
  EXPECT_DOUBLE_EQ(student_t(1), 12.706);
  EXPECT_DOUBLE_EQ(student_t(2), 4.303);
  EXPECT_DOUBLE_EQ(student_t(100), 2.306);
}

}  // namespace
}  // namespace gpt
