#include "gpt/train/progress_bar.h"

#include <gtest/gtest.h>

namespace gpt {
namespace {

TEST(ProgressLine, SaysThatTheFirstStepIsAlive) {
  const Progress progress{.steps_done = 0, .total_steps = 200};
  EXPECT_EQ(progress_line(progress, 12, ""), "[>                       ]   0% 0/200 | first step, 12s so far");
}

TEST(ProgressLine, MovesWithinAStep) {
  const Progress progress{.steps_done = 1,
                          .total_steps = 4,
                          .step_seconds = 100,
                          .remaining_seconds = 300,
                          .loss = 2.5,
                          .val_loss = 2.25,
                          .tokens_per_second = 1234};
  EXPECT_EQ(progress_line(progress, 0, ""),
            "[======>                 ]  25% 1/4 | loss 2.5000 | val 2.2500 | 1.2k tok/s | ETA 5m00s");
  EXPECT_EQ(progress_line(progress, 50, ""),
            "[=========>              ]  38% 1/4 | loss 2.5000 | val 2.2500 | 1.2k tok/s | ETA 4m10s");
  // A step that takes longer than those before it does not run into the next.
  EXPECT_NE(progress_line(progress, 1000, "").find(" 50% 1/4"), std::string::npos);
}

TEST(ProgressLine, NamesWhatIsDoneInsteadOfTraining) {
  const Progress progress{.steps_done = 4, .total_steps = 4, .step_seconds = 1, .remaining_seconds = 60};
  EXPECT_EQ(progress_line(progress, 20, "validating 34%"),
            "[========================] 100% 4/4 | validating 34% | ETA 40s");
}

}  // namespace
}  // namespace gpt
