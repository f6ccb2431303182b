#include "gpt/report/curve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace gpt::report {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Curve, KeepsEveryValueOfAShortRun) {
  Curve curve;
  for (int64_t step = 0; step < Curve::kMaxPoints / 2; ++step) curve.add(step, std::sin(static_cast<double>(step)));
  const auto points = curve.points();
  ASSERT_EQ(points.size(), Curve::kMaxPoints / 2);
  for (const CurvePoint& point : points) EXPECT_EQ(point.value, std::sin(static_cast<double>(point.step)));
}

TEST(Curve, ALongRunKeepsItsExtremesAndItsMeans) {
  Curve curve;
  for (int64_t step = 1; step <= 100'000; ++step)
    curve.add(step, step == 31'415 ? 50 : step == 77'777 ? -50 : step % 2);
  const auto points = curve.points();
  EXPECT_LE(points.size(), Curve::kMaxPoints);
  EXPECT_GT(points.size(), Curve::kMaxPoints / 4);
  EXPECT_TRUE(std::is_sorted(points.begin(), points.end(), [](auto& a, auto& b) { return a.step < b.step; }));
  const auto has = [&](int64_t step, double value) {
    return std::any_of(points.begin(), points.end(), [&](auto& p) { return p.step == step && p.value == value; });
  };
  EXPECT_TRUE(has(31'415, 50));
  EXPECT_TRUE(has(77'777, -50));
  for (const CurvePoint& mean : curve.means()) EXPECT_NEAR(*mean.value, 0.5, 0.5) << mean.step;
}

TEST(Curve, WhatIsNotFiniteIsAGap) {
  Curve curve;
  curve.add(1, 2.0);
  curve.add(2, kNan);
  curve.add(3, std::numeric_limits<double>::infinity());
  curve.add(4, 1.0);
  const auto points = curve.points();
  ASSERT_EQ(points.size(), 4);
  EXPECT_EQ(points[0].value, 2.0);
  EXPECT_FALSE(points[1].value);
  EXPECT_FALSE(points[2].value);
  EXPECT_EQ(points[3].value, 1.0);
}

TEST(Curve, AGapSurvivesThinning) {
  Curve curve;
  for (int64_t step = 0; step < 100'000; ++step) curve.add(step, step == 5'000 ? kNan : 1.0);
  const auto points = curve.points();
  EXPECT_LE(points.size(), Curve::kMaxPoints);
  EXPECT_EQ(std::count_if(points.begin(), points.end(), [](auto& p) { return !p.value; }), 1);
  for (const CurvePoint& mean : curve.means()) EXPECT_EQ(mean.value, 1.0);
}

TEST(Curve, StepsThatDoNotRiseAreLeftOut) {
  Curve curve;
  for (const int64_t step : {-5, 3, 3, 2, 4}) curve.add(step, static_cast<double>(step));
  const auto points = curve.points();
  ASSERT_EQ(points.size(), 2);
  EXPECT_EQ(points[0].step, 3);
  EXPECT_EQ(points[1].step, 4);
}

TEST(Curve, TheLargestStepsFit) {
  Curve curve;
  const int64_t most = std::numeric_limits<int64_t>::max();
  for (int64_t i = 0; i < 5'000; ++i) curve.add(most / 5'000 * i, 1.0);
  curve.add(most, 1.0);
  EXPECT_LE(curve.points().size(), Curve::kMaxPoints);
}

}  // namespace
}  // namespace gpt::report
