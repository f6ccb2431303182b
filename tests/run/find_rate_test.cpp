// How long the search for a learning rate takes a run to be. The search itself: rate_search_test.cpp and
// tests/e2e/test_find_rate.py.
#include "gpt/run/find_rate.h"

#include <gtest/gtest.h>

#include "train/tiny_run.h"

namespace gpt::run {
namespace {

TEST(ExpectedUpdates, AreThoseThatFitIntoTheRestOfTheTime) {
  const data::Corpus corpus = some_corpus();
  run::Setup setup{tiny_config(corpus), corpus, device::describe_device(at::kCPU), device::Precision{}};
  ScheduleConfig& schedule = setup.config.training.schedule;
  const auto fitting = [&](double update_seconds) {
    return expected_updates(setup, update_seconds, /*seconds_left=*/400);
  };
  EXPECT_EQ(fitting(0.5), kDefaultMaxSteps) << "there is no time that they fit into";
  schedule.max_time.seconds = 500;
  EXPECT_NEAR(static_cast<double>(fitting(0.5)), 800, 8) << "but for checkpoints";
  EXPECT_NEAR(static_cast<double>(fitting(0.01)), 40'000, 400);
  EXPECT_EQ(fitting(0), kDefaultMaxSteps) << "nobody knows";
  EXPECT_EQ(expected_updates(setup, 0.5, -1), 1) << "no time is left";
  schedule.max_steps = 300;
  EXPECT_EQ(fitting(0.5), 300);
}

}  // namespace
}  // namespace gpt::run
