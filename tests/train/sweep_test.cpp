#include "gpt/train/sweep.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace gpt::train {
namespace {

TEST(Sweep, HasEachCombinationAndChangesTheLastKeyFastest) {
  const auto found = combinations_of({"a=1,2", "b=x", "data.text=p=q.txt,r.txt"});
  const std::vector<Combination> expected = {{{"a", "1"}, {"b", "x"}, {"data.text", "p=q.txt"}},
                                             {{"a", "1"}, {"b", "x"}, {"data.text", "r.txt"}},
                                             {{"a", "2"}, {"b", "x"}, {"data.text", "p=q.txt"}},
                                             {{"a", "2"}, {"b", "x"}, {"data.text", "r.txt"}}};
  EXPECT_EQ(found, expected);
}

TEST(Sweep, HasAThousandRunsAtMost) {
  std::string ten = "=0";
  for (int i = 1; i < 10; ++i) ten += "," + std::to_string(i);
  EXPECT_EQ(combinations_of({"a" + ten, "b" + ten, "c" + ten}).size(), 1000U);
  EXPECT_ERROR((void)combinations_of({"a" + ten, "b" + ten, "c" + ten, "d=0,1"}), ExitCode::config,
               "these are more than 1000 runs");
}

}  // namespace
}  // namespace gpt::train
