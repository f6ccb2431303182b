#include "gpt/train/device_watch.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace gpt::train {
namespace {

class NotedSensor : public device::DeviceSensor {
 public:
  explicit NotedSensor(std::string& asked) : asked_(asked) {}
  void begin() override { asked_ += "b"; }
  report::DeviceUse read() override { return asked_ += "r", report::DeviceUse{.utilization = 0.5}; }

 private:
  std::string& asked_;
};

struct Watched {
  std::string asked;
  double waited = 0, now = 100;
  DeviceWatch watch{std::make_unique<NotedSensor>(asked), [this] { return waited; }, [this] { return now; }};
};

TEST(DeviceWatch, IsReadAtMostOnceASecond) {
  Watched w;
  EXPECT_FALSE(w.watch.read()) << "nothing has begun";
  w.watch.trains();
  w.now += 0.5;
  EXPECT_FALSE(w.watch.read());
  w.now += 0.5;
  EXPECT_EQ(w.watch.read()->utilization, 0.5);
  EXPECT_FALSE(w.watch.read());
  EXPECT_EQ(w.asked, "br");
}

TEST(DeviceWatch, WhatTheDeviceDoesBesidesTrainingIsNoPartOfIt) {
  Watched w;
  for (int update = 0; update < 3; ++update) w.watch.trains();
  w.now += 5;
  w.watch.pauses();
  EXPECT_FALSE(w.watch.read());
  w.now += 0.3;
  w.watch.pauses();
  w.now += 0.3;
  w.watch.trains();
  w.now += 0.9;
  EXPECT_FALSE(w.watch.read());
  w.now += 1;
  EXPECT_TRUE(w.watch.read());
  EXPECT_EQ(w.asked, "bbr");
}

TEST(DeviceWatch, ShortPausesArePartOfTraining) {
  Watched w;
  for (int update = 0; update < 5; ++update) {
    w.watch.trains();
    w.now += 0.2;
    w.watch.pauses();
    w.now += 0.1;
  }
  w.watch.trains();
  EXPECT_TRUE(w.watch.read());
  EXPECT_EQ(w.asked, "br");
}

TEST(DeviceWatch, KnowsTheShareOfTheWaitForData) {
  Watched w;
  w.waited = 40;
  w.watch.trains();
  w.now += 4, w.waited += 1;
  EXPECT_DOUBLE_EQ(*w.watch.read()->data_wait, 0.25);
  w.now += 4;
  EXPECT_DOUBLE_EQ(*w.watch.read()->data_wait, 0);
}

TEST(DeviceWatch, WithoutASensorThereIsNothing) {
  DeviceWatch watch(nullptr, [] { return 0.0; }, [now = 0.0]() mutable { return now += 10; });
  watch.trains();
  EXPECT_FALSE(watch.read());
}

}  // namespace
}  // namespace gpt::train
