// What would make a run need less memory: the settings that exist, each tried on the estimate.
#pragma once

#include <string>
#include <vector>

#include "gpt/config/config.h"
#include "gpt/device/device.h"
#include "gpt/diagnose/check.h"

namespace gpt {

// In order of gain, each alone, and only those that gain anything. `config.model.vocab_size` must be set, `attention` is the
// kernel's name, and `data_bytes` are the tokens on the device.
std::vector<Check::Saver> find_savers(const Config& config, const DeviceInfo& device, const std::string& attention,
                                      double data_bytes);

}  // namespace gpt
