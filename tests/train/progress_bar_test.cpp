#include "gpt/train/progress_bar.h"

#include <gtest/gtest.h>

namespace gpt::train {
namespace {

TEST(ProgressLine, SaysThatTheFirstStepIsAlive) {
  const Progress progress{.steps_done = 0, .total_steps = 200};
  EXPECT_EQ(progress_line(progress, 12, "", 120), "[>                       ]   0% 0/200 | first step, 12s so far");
}

TEST(ProgressLine, MovesWithinAStep) {
  const Progress progress{.steps_done = 1,
                          .total_steps = 4,
                          .step_seconds = 100,
                          .remaining_seconds = 300,
                          .loss = 2.5,
                          .val_loss = 2.25,
                          .tokens_per_second = 1234};
  EXPECT_EQ(progress_line(progress, 0, "", 120),
            "[======>                 ]  25% 1/4 | ETA 5m00s | loss 2.5000 | val 2.2500 | 1.2k tok/s");
  EXPECT_EQ(progress_line(progress, 50, "", 120),
            "[=========>              ]  38% 1/4 | ETA 4m10s | loss 2.5000 | val 2.2500 | 1.2k tok/s");
  // A step that takes longer than those before it does not run into the next.
  EXPECT_NE(progress_line(progress, 1000, "", 120).find(" 50% 1/4"), std::string::npos);
}

TEST(ProgressLine, NamesWhatIsDoneInsteadOfTraining) {
  const Progress progress{.steps_done = 4, .total_steps = 4, .step_seconds = 1, .remaining_seconds = 60};
  EXPECT_EQ(progress_line(progress, 20, "validating 34%", 120),
            "[========================] 100% 4/4 | ETA 40s | validating 34%");
}

TEST(ProgressLine, FitsIntoANarrowTerminal) {
  const Progress progress{.steps_done = 109,
                          .total_steps = 400,
                          .step_seconds = 1,
                          .remaining_seconds = 300,
                          .loss = 2.9355,
                          .val_loss = 2.8381,
                          .tokens_per_second = 213'300};
  const auto line = [&](int columns) { return progress_line(progress, 0, "", columns); };
  EXPECT_EQ(line(79), "[==>       ]  27% 109/400 | ETA 5m00s | loss 2.9355 | val 2.8381 | 213.3k tok/s");
  EXPECT_EQ(line(59), "[====>             ]  27% 109/400 | ETA 5m00s | loss 2.9355");
  EXPECT_EQ(line(39), "[===>        ]  27% 109/400 | ETA 5m00s");
  EXPECT_EQ(line(25), " 27% 109/400 | ETA 5m00s");
  EXPECT_EQ(line(21), "[=>    ]  27% 109/400");
  EXPECT_EQ(line(5), " 27% 109/400") << "the log cuts it";
}

}  // namespace
}  // namespace gpt::train
