// What the device does while a run trains, for its log lines. Evaluations, samples and checkpoints use it in other ways: an interval begins
// anew after one of them, unless it was short.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "gpt/core/processors.h"
#include "gpt/device/device_sensor.h"

namespace gpt::train {

class DeviceWatch {
 public:
  using Seconds = std::function<double()>;
  // `waited`: for data, so far. No sensor: nothing is read.
  DeviceWatch(std::unique_ptr<device::DeviceSensor> sensor, Seconds waited, Seconds now = seconds_since_boot);

  void trains();  // from now on, as before or again
  void pauses();  // the device does something else from now on

  // What it did since the last reading, to be asked while it trains. Nothing within a second, in which the sources count too little.
  std::optional<report::DeviceUse> read();
  static constexpr double kShortest = 1, kLongPause = 0.5;  // seconds

 private:
  void begin();

  std::unique_ptr<device::DeviceSensor> sensor_;
  Seconds waited_, now_;
  std::optional<double> began_, paused_;  // the interval; since when it does something else
  double waited_before_ = 0;
};

}  // namespace gpt::train
