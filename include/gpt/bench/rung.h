// The optimizations that gpt-bench can switch on one at a time, and the configuration without any of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gpt/config/config.h"
#include "gpt/device/device.h"

namespace gpt {

struct Rung {
  std::string name;      // as `gpt-bench combo` takes it
  std::string settings;  // what it sets, as a person would write it
  std::function<void(Config& config)> apply;
  std::string obstacle = {};  // why it cannot be measured here; empty: it can
};

// From float32 without any optimization upwards. `wanted`: whose vocab_multiple the rungs restore.
std::vector<Rung> rungs(const Config& wanted, const DeviceInfo& device);

// What the full set of rungs is measured with besides: batches of 32 to 256 sequences and, where it runs on a GPU, the CPU.
std::vector<Rung> variants(const DeviceInfo& device);

// `wanted` as some updates of it are measured: from the start, at the learning rate that a short warm-up leads to, with nothing
// beside the updates.
Config measurable(const Config& wanted);

// Instead of ours, and no gradient checkpointing that only ours can do.
void use_libtorchs_operators(Config& config);

// The same with every rung taken away.
Config without_rungs(const Config& wanted);

}  // namespace gpt
