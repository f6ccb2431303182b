// Who says what a device does. Reading waits for nothing that the device computes.
#pragma once

#include <memory>
#include <string>

#include "gpt/report/device_use.h"

namespace gpt::device {

class DeviceSensor {
 public:
  virtual ~DeviceSensor() = default;
  virtual void begin() = 0;  // an interval begins now
  // What the device did since then, or since the last reading; another interval begins.
  virtual report::DeviceUse read() = 0;
};

struct FoundSensor {
  std::unique_ptr<DeviceSensor> sensor;
  std::string reason = {};  // why there is none
};

}  // namespace gpt::device
