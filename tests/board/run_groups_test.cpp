#include "gpt/board/run_groups.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "board/compared_runs.h"

namespace gpt::board {
namespace {

using test::run_of;

std::string verdict_of(std::vector<RunSummary> runs) { return verdict_on(grouped(std::move(runs)).at(0)); }

TEST(RunGroups, AVerdictNeedsTheSpreadBetweenSeeds) {
  EXPECT_EQ(verdict_of({run_of("a", 2.0, 1, 1e-3)}), "");
  EXPECT_EQ(
      verdict_of({run_of("a", 2.0, 1, 1e-3), run_of("b", 1.5, 1, 5e-4)}),
      "b is 0.5000 better than a (1.5000 and 2.0000 validation loss). Whether that is more than chance needs runs with "
      "other seeds: --seed.");
  EXPECT_EQ(verdict_of({run_of("a", 1.0, 1, 1e-3), run_of("b", 2.0, 2, 1e-3), run_of("c", 3.0, 3, 1e-3)}),
            "The runs differ in their seeds alone: validation loss 2.0000, with a standard deviation of 1.0000.");
  std::vector<RunSummary> four{run_of("a", 2.00, 1, 1e-3), run_of("b", 2.02, 2, 1e-3), run_of("c", 1.50, 1, 5e-4),
                               run_of("d", 1.52, 2, 5e-4)};
  // The spread is 0.02 / sqrt(2) with two degrees of freedom, and so the interval 4.303 times that.
  EXPECT_EQ(
      verdict_of(four),
      "c (2 seeds) is better than a (2 seeds): 1.5100 and 2.0100 validation loss; the difference is 0.5000 ± 0.0609 "
      "(95 %, from the spread between seeds).");
  four[0] = run_of("a", 1.55, 1, 1e-3), four[1] = run_of("b", 1.53, 2, 1e-3);
  EXPECT_TRUE(verdict_of(four).starts_with("c (2 seeds) cannot be told from b (2 seeds): ")) << verdict_of(four);
}

}  // namespace
}  // namespace gpt::board
