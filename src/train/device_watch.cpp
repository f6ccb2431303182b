#include "gpt/train/device_watch.h"

#include <algorithm>
#include <utility>

namespace gpt::train {

DeviceWatch::DeviceWatch(std::unique_ptr<device::DeviceSensor> sensor, Seconds waited, Seconds now)
    : sensor_(std::move(sensor)), waited_(std::move(waited)), now_(std::move(now)) {}

void DeviceWatch::trains() {
  const auto paused = std::exchange(paused_, std::nullopt);
  const bool goes_on = began_ && (!paused || now_() - *paused < kLongPause);
  if (!sensor_ || goes_on) return;
  sensor_->begin();
  begin();
}

void DeviceWatch::pauses() {
  if (!paused_) paused_ = now_();
}

void DeviceWatch::begin() {
  began_ = now_();
  waited_before_ = waited_();
}

std::optional<report::DeviceUse> DeviceWatch::read() {
  if (!sensor_ || !began_ || paused_) return std::nullopt;
  const double seconds = now_() - *began_;
  if (seconds < kShortest) return std::nullopt;
  report::DeviceUse use = sensor_->read();
  use.data_wait = std::clamp((waited_() - waited_before_) / seconds, 0.0, 1.0);
  begin();
  return use;
}

}  // namespace gpt::train
