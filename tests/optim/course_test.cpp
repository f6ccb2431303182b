#include "gpt/optim/course.h"

#include <gtest/gtest.h>

#include "gpt/optim/lr_schedule.h"

namespace gpt::optim {
namespace {

TEST(Course, IsTheStepWhereTheLengthIsGivenInUpdates) {
  EXPECT_EQ(Course().position_at(0), 0);
  EXPECT_EQ(Course().position_at(123), 123);
}

TEST(Course, GoesByWholeStepsUntilItIsCorrected) {
  Course course;
  course.end_at(1000, 0);
  for (const int64_t step : {0, 1, 999, 1000}) EXPECT_EQ(course.position_at(step), static_cast<double>(step));
}

// What is left of the schedule is spread evenly over the updates that are left.
TEST(Course, GoesFasterOrSlowerFromACorrectionOn) {
  Course course;
  course.end_at(1000, 0);
  course.end_at(600, 200);
  EXPECT_EQ(course.position_at(200), 200) << "without a jump";
  EXPECT_DOUBLE_EQ(course.position_at(201), 202);
  EXPECT_DOUBLE_EQ(course.position_at(400), 600);
  course.end_at(800, 400);
  EXPECT_DOUBLE_EQ(course.position_at(400), 600);
  EXPECT_DOUBLE_EQ(course.position_at(600), 800);
  EXPECT_EQ(course.position_at(800), 1000) << "the end of the schedule is the end of the run";
  EXPECT_EQ(course.planned, 1000);
}

TEST(Course, EndsWhereNoTimeIsLeft) {
  Course course;
  course.end_at(1000, 0);
  course.end_at(500, 500);
  EXPECT_EQ(course.total, 500);
  EXPECT_EQ(course.position_at(500), 1000);
}

// A run that had 500 updates of another length, and now has a time.
TEST(Course, MayBeginOnTheWay) {
  Course course;
  course.end_at(800, 500);
  EXPECT_EQ(course.planned, 800);
  EXPECT_EQ(course.position_at(500), 500);
  EXPECT_EQ(course.position_at(650), 650);
}

TEST(Course, IsAsFarAlongALongerOneAsItIs) {
  Course course;
  course.end_at(1000, 0);
  course.end_at(2000, 500);  // the machine became slower, or so it looked
  EXPECT_DOUBLE_EQ(course.position_at(1250), 750);
  course.stretch(2, 1250);
  EXPECT_EQ(course.planned, 2000);
  EXPECT_DOUBLE_EQ(course.position_at(1250), 750);
  EXPECT_EQ(course.total, 1250 + 1250 * 1250 / 750) << "at the speed that it has had";
  EXPECT_EQ(course.position_at(course.total), 2000);
}

TEST(Course, ThatIsDoneGoesOnWithTwiceTheTime) {
  Course course;
  course.end_at(100, 0);
  course.stretch(2, 100);
  EXPECT_EQ(course.planned, 200);
  EXPECT_EQ(course.position_at(100), 100);
  EXPECT_EQ(course.total, 200);
}

// The rate is the one of the place on the schedule, so it never jumps.
TEST(Course, KeepsTheLearningRateWhereItWas) {
  ScheduleConfig schedule;
  schedule.warmup_steps = 100;
  Course course;
  course.end_at(1000, 0);
  const auto rate = [&](int64_t step) { return learning_rate_at(schedule, course.position_at(step), course.planned); };
  const double before = rate(300), next = rate(301);
  course.end_at(500, 300);
  EXPECT_EQ(rate(300), before);
  EXPECT_LT(rate(301), next) << "it falls faster now";
  EXPECT_EQ(rate(500), schedule.min_lr);
}

}  // namespace
}  // namespace gpt::optim
