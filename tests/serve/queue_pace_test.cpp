#include "gpt/serve/queue_pace.h"

#include <gtest/gtest.h>

namespace gpt::serve {
namespace {

using std::chrono::milliseconds;

QueuePace::Clock::time_point at(int64_t ms) { return QueuePace::Clock::time_point(milliseconds(ms)); }

TEST(QueuePace, IsTheTimeBetweenThoseThatLeave) {
  QueuePace pace;
  EXPECT_EQ(pace.seconds_until_room(at(5'000)), 1);  // nobody knows
  pace.one_left(at(10'000), 2);
  EXPECT_EQ(pace.seconds_until_room(at(10'000)), 1);
  pace.one_left(at(14'500), 1);
  EXPECT_EQ(pace.seconds_until_room(at(14'500)), 5);
  pace.one_left(at(15'000), 0);
  EXPECT_EQ(pace.seconds_until_room(at(15'000)), 4);  // the newest count a little
  pace.one_left(at(900'000), 1);                      // nobody waited meanwhile
  EXPECT_EQ(pace.seconds_until_room(at(900'000)), 4);
}

TEST(QueuePace, IsAMinuteAtMost) {
  QueuePace pace;
  pace.one_left(at(0), 1);
  EXPECT_EQ(pace.seconds_until_room(at(20'100)), 21);  // so long nobody has left
  EXPECT_EQ(pace.seconds_until_room(at(9'000'000)), 60);
  pace.one_left(at(9'000'000), 1);
  EXPECT_EQ(pace.seconds_until_room(at(9'000'000)), 60);
}

}  // namespace
}  // namespace gpt::serve
