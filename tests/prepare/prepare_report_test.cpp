#include "gpt/prepare/prepare_report.h"

#include <gtest/gtest.h>

namespace gpt::prepare {
namespace {

TEST(ProgressLineTest, HasRateAndTimeLeft) {
  EXPECT_EQ(progress_line({"encoding", 52'000'000, 100'000'000}, 0.5),
            "encoding [==========>         ] 52%, 52.0 MB, 104.0 MB/s, 1s left");
  EXPECT_EQ(progress_line({"encoding", 1'000'000, 0}, 1), "encoding, 1.0 MB, 1.0 MB/s");
  EXPECT_EQ(progress_line({"training the tokenizer", 1000, 8000, false}, 20),
            "training the tokenizer [==>                 ] 12%, 1,000 merges, 2m20s left");
}

}  // namespace
}  // namespace gpt::prepare
