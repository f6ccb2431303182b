// The sensor of the device that a run uses.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "gpt/device/device_sensor.h"

namespace gpt {

// `processes`: of the run. Nothing, with the reason, on a GPU without NVML.
FoundSensor find_sensor(at::Device device, int64_t processes);

}  // namespace gpt
