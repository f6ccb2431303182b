#include "gpt/run/time_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

namespace gpt::run {
namespace {

// A run by a clock of its own, which validates every tenth of its planned length.
struct SimulatedRun {
  double seconds = 60, validation = 0.3, saving = 0.1, start = 2;
  std::function<double(double now)> update;  // how long one takes that begins then

  double now = 0, longest = 0;
  int64_t step = 0, corrections = 0;

  // When it ends.
  double run() {
    now = start;
    const int64_t planned = updates_in(seconds - now, update(now), 11 * validation + saving);
    int64_t total = planned;
    const int64_t every = std::max<int64_t>(1, planned / 10);
    TimeBudget budget(seconds, now);
    while (step < total) {
      budget.begins(now);
      const double took = update(now);
      now += took, longest = std::max(longest, took), ++step;
      const double closing = validation + saving;
      const double all = closing + validation * static_cast<double>(total / every - step / every);
      const auto wanted = budget.after_update(step, now, total, {.all = all, .closing = closing});
      if (wanted) total = *wanted, ++corrections;
      if (step % every == 0 && step < total) now += validation;
    }
    return now += validation + saving;
  }
  double allowed() const { return std::max({0.01 * seconds, 2.0, longest}); }
};

void expect_in_time(SimulatedRun run, const char* what) {
  for (const double seconds : {30.0, 60.0, 300.0, 600.0, 3600.0}) {
    SimulatedRun one = run;
    one.seconds = seconds;
    const double end = one.run();
    EXPECT_NEAR(end, seconds, one.allowed()) << what << ", " << seconds << " s, " << one.step << " updates";
    EXPECT_LE(one.corrections, 110) << what << ", " << seconds << " s";
  }
}

TEST(TimeBudget, EndsInTimeAtASteadySpeed) {
  for (const double update : {0.001, 0.02, 0.5, 3.0, 20.0})
    expect_in_time({.update = [update](double) { return update; }}, "steady");
}

TEST(TimeBudget, HasNothingToCorrectWhereTheForecastWasRight) {
  SimulatedRun run{.seconds = 600, .update = [](double) { return 0.1; }};
  (void)run.run();
  EXPECT_LE(run.corrections, 1);
}

TEST(TimeBudget, EndsInTimeBesideANeighbourThatComesAndGoes) {
  expect_in_time({.update = [](double now) { return std::fmod(now, 17) < 8 ? 0.1 : 0.05; }}, "neighbour");
}

TEST(TimeBudget, EndsInTimeWhereTheMachineBecomesSlower) {
  for (const double factor : {0.25, 0.5, 2.0, 5.0})
    expect_in_time({.update = [factor](double now) { return now < 25 ? 0.05 : 0.05 * factor; }}, "change");
}

TEST(TimeBudget, EndsInTimeWithUpdatesThatVary) {
  std::mt19937 random(1);
  std::lognormal_distribution<double> noise(0, 0.5);
  expect_in_time({.update = [&](double) { return 0.04 * noise(random); }}, "noise");
}

TEST(TimeBudget, EndsAtOnceWhereNoTimeIsLeft) {
  TimeBudget budget(10, 0);
  budget.begins(9);
  EXPECT_EQ(budget.after_update(1, 9.9, 100, {}), 1) << "the next one would take another 0.9 s";
  EXPECT_EQ(budget.after_update(100, 10.8, 100, {}), std::nullopt) << "it is the last one anyway";
}

TEST(TimeBudget, LeavesTimeForWhatComesAfterTheLastUpdate) {
  TimeBudget budget(10, 0);
  EXPECT_EQ(budget.after_update(1, 1, 100, {.all = 9, .closing = 8.6}), 1);
}

TEST(UpdatesIn, AreAtLeastOne) {
  EXPECT_EQ(updates_in(10, 1, 2), 8);
  EXPECT_EQ(updates_in(10, 1, 20), 1);
  EXPECT_EQ(updates_in(1e9, 1e-9, 0), 1'000'000'000'000);
}

}  // namespace
}  // namespace gpt::run
