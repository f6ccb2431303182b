// What training.quantized_forward gains here.
#pragma once

#include "gpt/config/config.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"
#include "gpt/plan/check.h"

namespace gpt::plan {

// Measured on the device, unless that is another one than here. Fails where nothing is gained, unless that is forced, and where device or
// precision cannot do it.
Check check_quantized_forward(const UpdateConfig& config, const device::DeviceInfo& device,
                              const device::Precision& precision, bool is_here);

}  // namespace gpt::plan
