#include "gpt/serve/text_event.h"

#include <gtest/gtest.h>

#include <thread>

namespace gpt::serve {
namespace {

using namespace std::chrono_literals;

TEST(EventQueue, BringsEventsInOrderAndThenTheError) {
  EventQueue events;
  EXPECT_FALSE(events.next(0ms));
  std::thread worker([&] {
    events.push({.text = "a"});
    events.push({.text = "b"});
    events.fail({503, "stopping"});
    events.push({.text = "c"});  // nobody gets it
  });
  EXPECT_EQ(events.next(10s)->text, "a");
  EXPECT_EQ(events.next(10s)->text, "b");
  EXPECT_THROW(events.next(10s), ApiError);
  EXPECT_TRUE(events.is_over());
  worker.join();
}

// It would wait for an hour.
TEST(EventQueue, WakesAReaderOfWholeTextsWhereOneHasEnded) {
  EventQueue events(/*wakes_for_each=*/false);
  std::thread worker([&] {
    events.push({.text = "a"});
    events.push({.text = "b", .finish_reason = "stop"});
  });
  EXPECT_EQ(events.next(1h)->text, "a");
  EXPECT_EQ(events.next(0ms)->text, "b");
  worker.join();
  std::thread failing([&] { events.fail({503, "stopping"}); });
  EXPECT_THROW(events.next(1h), ApiError);
  failing.join();
}

TEST(EventQueue, HoldsNoMoreThanItsBound) {
  EventQueue events;
  const std::string piece(1000, 'x');
  int taken = 0;
  while (!events.is_over() && taken < 10'000) events.push({.text = piece}), ++taken;
  EXPECT_GT(taken, 800);
  EXPECT_LT(taken, 1100);
  for (int i = 1; i < taken; ++i) EXPECT_EQ(events.next(0ms)->text, piece);  // what was in time is not lost
  EXPECT_THROW(events.next(0ms), ApiError);
}

// A client that keeps up may read any number.
TEST(EventQueue, CountsOnlyWhatIsUnread) {
  EventQueue events;
  for (int i = 0; i < 10'000; ++i) {
    events.push({.text = std::string(1000, 'x')});
    ASSERT_TRUE(events.next(0ms));
  }
  EXPECT_FALSE(events.is_over());
}

TEST(EventQueue, IsOverWhenItsReaderHasLeft) {
  EventQueue events;
  events.push({.text = "a"});
  events.leave();
  EXPECT_TRUE(events.is_over());
  events.push({.text = "b"});
  EXPECT_FALSE(events.next(0ms));
}

}  // namespace
}  // namespace gpt::serve
