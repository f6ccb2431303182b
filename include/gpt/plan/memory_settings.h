// The settings of a run that save memory and not time, each with its price: what gpt-diagnose proposes and gpt-bench measures.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gpt/config/training_config.h"
#include "gpt/device/device.h"

namespace gpt::plan {

struct MemorySetting {
  std::string name;                   // as `gpt-bench combo` takes it
  std::vector<std::string> settings;  // in YAML, below `training`
  std::string price;
  std::function<void(TrainingConfig& training)> apply;
  std::string obstacle = {};  // why this device does not have it; empty: it does
  bool is_proven = true;      // it has been run where it matters, and may be what a run is told to fit with
};

std::vector<MemorySetting> memory_settings(const device::DeviceInfo& device);

// The same effective batch from micro-batches that are at most half as large. `batch_size` is at least 2.
MemorySetting smaller_batch(const TrainingConfig& training);

}  // namespace gpt::plan
