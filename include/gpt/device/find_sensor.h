// The sensor of the device that a process of a run uses.
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/device/device_sensor.h"

namespace gpt::device {

// Nothing, with the reason, on a GPU without NVML.
FoundSensor find_sensor(at::Device device);

}  // namespace gpt::device
