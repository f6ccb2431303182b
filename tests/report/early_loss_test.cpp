#include "gpt/report/early_loss.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/process.h"
#include "gpt/report/metrics_file.h"

namespace gpt::report {
namespace {

RunHistory history_of(const std::vector<std::pair<int64_t, double>>& losses) {
  RunHistory history;
  for (const auto& [step, loss] : losses)
    history.add(EvaluationRecord{.step = step, .loss = loss, .bits_per_byte = loss / 2});
  return history;
}

RunRecord steps_of_run(int64_t first_step, int64_t total_steps) {
  RunRecord run;
  run.first_step = first_step, run.total_steps = total_steps;
  return run;
}

TEST(EarlyLossTest, IsThatOfTheFirstValidationAfterAThirdThatIsNotTheFirst) {
  const RunHistory history = history_of({{10, 4}, {20, 3}, {30, 2}, {40, 1}});
  EXPECT_EQ(early_loss(history, 90)->loss, 2);
  EXPECT_EQ(*early_loss(history, 90)->bits_per_byte, 1);
  EXPECT_EQ(early_loss(history, 91)->loss, 1);
  EXPECT_EQ(early_loss(history, 30)->loss, 3) << "the first one is too early to compare anything";
  EXPECT_FALSE(early_loss(history, 121));
  EXPECT_FALSE(early_loss(history_of({{50, 4}}), 90));
}

TEST(EarlyLossTest, AtMostHalfOfTheRunsArePoor) {
  const auto loss = [](double value) { return std::optional(EarlyLoss{value, value / 3}); };
  EXPECT_EQ(find_poor({loss(2), loss(1)}), (std::vector{true, false}));
  EXPECT_EQ(find_poor({loss(2), loss(3), loss(1)}), (std::vector{false, true, false}));
  EXPECT_EQ(find_poor({loss(2), std::nullopt, loss(1), loss(4), loss(3)}),
            (std::vector{false, false, false, true, true}))
      << "one that was never judged goes on";
  const auto diverged = std::optional(EarlyLoss{NAN, std::nullopt});
  EXPECT_EQ(find_poor({diverged, loss(3)}), (std::vector{true, false}));
  EXPECT_EQ(find_poor({loss(1)}), (std::vector{false}));
  EXPECT_EQ(find_poor({std::nullopt, std::nullopt}), (std::vector{false, false}));
}

TEST(EarlyLossTest, RunsAreComparedByBitsPerByteWhereAllHaveThem) {
  const EarlyLoss of_bytes{1.5, 2.1}, of_words{4.0, 1.9}, without{2.0, std::nullopt};
  EXPECT_EQ(find_poor({of_bytes, of_words}), (std::vector{true, false}));
  EXPECT_EQ(find_poor({of_words, without}), (std::vector{true, false}));
  EXPECT_EQ(find_poor({of_bytes, of_words, EarlyLoss{NAN, std::nullopt}}), (std::vector{false, false, true}));
  EXPECT_EQ(find_poor({of_bytes, of_words, EarlyLoss{1, 3}, EarlyLoss{NAN, std::nullopt}}),
            (std::vector{false, false, true, true}))
      << "one that has diverged has no bits";
}

class StopAtThirdTest : public testing::Test {
 protected:
  ~StopAtThirdTest() override { process::forget_stop_signal(); }

  static void validate(StopAtThird& stop, int64_t step) {
    stop.evaluation({.step = step, .loss = 2, .bits_per_byte = 1});
  }
  static bool stops(StopAtThird& stop, int64_t step) {
    stop.activity({.step = step, .what = "training"});
    return process::stop_signal() == SIGTERM;
  }

  ScratchFolder folder_;
  const std::string metrics_ = folder_ / "metrics.jsonl";
};

TEST_F(StopAtThirdTest, RequestsAStopWithTheNextUpdate) {
  StopAtThird stop(metrics_);
  stop.begin(steps_of_run(0, 60));
  validate(stop, 10);
  EXPECT_FALSE(stops(stop, 10));
  validate(stop, 20);
  stop.activity({.step = 20, .what = "writing a sample"});
  EXPECT_EQ(process::stop_signal(), 0) << "the sample is written";
  EXPECT_TRUE(stops(stop, 20));
}

TEST_F(StopAtThirdTest, ARunThatBecomesShorterStopsAtItsNextUpdate) {
  StopAtThird stop(metrics_);
  stop.begin(steps_of_run(0, 90));
  validate(stop, 10);
  validate(stop, 20);
  EXPECT_FALSE(stops(stop, 20));
  stop.length(60, 1);
  EXPECT_TRUE(stops(stop, 21));
}

TEST_F(StopAtThirdTest, ARunThatHasComeSoFarStopsAtOnce) {
  MetricsFile metrics(metrics_);
  metrics.begin(steps_of_run(0, 60));
  for (const int64_t step : {10, 20}) metrics.evaluation({.step = step, .loss = 2, .bits_per_byte = 1});
  StopAtThird stop(metrics_);
  stop.begin(steps_of_run(20, 60));
  EXPECT_EQ(process::stop_signal(), SIGTERM);
  process::forget_stop_signal();
  StopAtThird longer(metrics_);
  longer.begin(steps_of_run(20, 600));
  EXPECT_FALSE(stops(longer, 20)) << "its third comes later now";
}

}  // namespace
}  // namespace gpt::report
