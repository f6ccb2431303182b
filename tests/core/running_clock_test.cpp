#include "gpt/core/running_clock.h"

#include <gtest/gtest.h>

namespace gpt {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Pauses, AreWhatLiesBetweenTheLastLookAndTheWaking) {
  Pauses pauses;
  pauses.look(seconds(10));
  pauses.woke(seconds(110));
  EXPECT_EQ(pauses.total(), seconds(100) - Pauses::kBetweenLooks);
  pauses.look(seconds(111));
  pauses.woke(seconds(121));
  EXPECT_EQ(pauses.total(), seconds(110) - 2 * Pauses::kBetweenLooks);
}

TEST(Pauses, ALookThatComesLateIsNone) {
  Pauses pauses;
  EXPECT_FALSE(pauses.is_late(seconds(10))) << "nobody looks";
  pauses.look(seconds(10));
  EXPECT_FALSE(pauses.is_late(seconds(10) + Pauses::kBetweenLooks));
  EXPECT_TRUE(pauses.is_late(seconds(20)));
  pauses.look(seconds(20));
  EXPECT_EQ(pauses.total(), seconds(0)) << "the machine was busy, and the process not stopped";
}

TEST(Pauses, AWakingWithoutAStopIsNone) {
  Pauses pauses;
  pauses.woke(seconds(10));
  pauses.look(seconds(20));
  pauses.woke(seconds(20) + milliseconds(150));
  EXPECT_EQ(pauses.total(), seconds(0));
}

TEST(Pauses, OneThatSomebodyHasTheProcessMakeCountsOnceThoughItIsStoppedMeanwhile) {
  Pauses pauses;
  pauses.look(seconds(10));
  pauses.begin(seconds(20));
  EXPECT_EQ(pauses.known().since, seconds(20));
  pauses.look(seconds(30));
  pauses.woke(seconds(90));
  EXPECT_EQ(pauses.total(), seconds(0));
  pauses.end(seconds(100));
  EXPECT_EQ(pauses.total(), seconds(80));
  EXPECT_FALSE(pauses.known().since);
  pauses.end(seconds(110));
  EXPECT_EQ(pauses.total(), seconds(80)) << "there was none";
}

TEST(RunningClock, StandsStillWhileItIsPausedAndNeverGoesBack) {
  const auto before = RunningClock::now();
  RunningClock::time_point during;
  {
    const RunningClock::Pause pause;
    during = RunningClock::now();
    const auto real = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - real < milliseconds(20)) EXPECT_EQ(RunningClock::now(), during);
  }
  const auto after = RunningClock::now();
  EXPECT_GE(during, before);
  EXPECT_GE(after, during);
}

}  // namespace
}  // namespace gpt
