// The order of a pipeline's passes, and that stages which keep it never wait for each other in a circle.
#include "gpt/parallel/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

namespace gpt::parallel {
namespace {

std::string text_of(const std::vector<Turn>& turns) {
  std::string text;
  for (const auto& [pass, micro_batch] : turns)
    text += (text.empty() ? "" : " ") + std::string(pass == Pass::forward ? "F" : "B") + std::to_string(micro_batch);
  return text;
}

TEST(PipelineSchedule, IsOneForwardOneBackward) {
  EXPECT_EQ(text_of(pipeline_schedule(0, 3, 5)), "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4");
  EXPECT_EQ(text_of(pipeline_schedule(1, 3, 5)), "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4");
  EXPECT_EQ(text_of(pipeline_schedule(2, 3, 5)), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
  EXPECT_EQ(text_of(pipeline_schedule(0, 4, 2)), "F0 F1 B0 B1");
  EXPECT_TRUE(pipeline_schedule(0, 2, 0).empty());
}

class PipelineSchedules : public testing::TestWithParam<std::tuple<int64_t, int64_t>> {};

// A pass begins when its stage has ended the turn before, and the pass that it takes something from has ended. All take one unit of time.
TEST_P(PipelineSchedules, TakeNoLongerThanTheBubbleSays) {
  const auto [stages, micro_batches] = GetParam();
  std::vector<std::vector<Turn>> turns;
  for (int64_t stage = 0; stage < stages; ++stage) {
    turns.push_back(pipeline_schedule(stage, stages, micro_batches));
    int64_t in_flight = 0, most = 0;
    for (const auto& [pass, micro_batch] : turns.back())
      most = std::max(most, in_flight += pass == Pass::forward ? 1 : -1);
    EXPECT_EQ(most, most_in_flight(stage, stages, micro_batches));
    EXPECT_EQ(in_flight, 0);
    EXPECT_EQ(std::ssize(turns.back()), 2 * micro_batches);
  }
  std::vector<std::vector<int64_t>> forward(stages, std::vector<int64_t>(micro_batches, -1)), backward = forward;
  std::vector<size_t> next(stages, 0);
  std::vector<int64_t> free_at(stages, 0);
  for (bool moves = true; std::exchange(moves, false);) {
    for (int64_t stage = 0; stage < stages; ++stage) {
      while (next[stage] < turns[stage].size()) {
        const auto [pass, micro_batch] = turns[stage][next[stage]];
        int64_t ready = 0;
        if (pass == Pass::forward && stage > 0) ready = forward[stage - 1][micro_batch];
        if (pass == Pass::backward)
          ready = stage + 1 < stages ? backward[stage + 1][micro_batch] : forward[stage][micro_batch];
        if (ready < 0) break;
        (pass == Pass::forward ? forward : backward)[stage][micro_batch] = free_at[stage] =
            std::max(ready, free_at[stage]) + 1;
        ++next[stage], moves = true;
      }
    }
  }
  for (int64_t stage = 0; stage < stages; ++stage) ASSERT_EQ(next[stage], turns[stage].size()) << "they wait for ever";
  const int64_t took = *std::max_element(free_at.begin(), free_at.end());
  EXPECT_NEAR(static_cast<double>(took) * (1 - bubble(stages, micro_batches)), 2.0 * static_cast<double>(micro_batches),
              1e-9);
}

INSTANTIATE_TEST_SUITE_P(All, PipelineSchedules,
                         testing::Combine(testing::Values(1, 2, 3, 4, 8), testing::Values(1, 2, 3, 5, 8, 17)));

}  // namespace
}  // namespace gpt::parallel
