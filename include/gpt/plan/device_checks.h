// What a configuration computes on, and in which precision. Plain functions of what is known about the machine.
#pragma once

#include <cstdint>
#include <string>

#include "gpt/config/training_config.h"
#include "gpt/device/device.h"
#include "gpt/plan/check.h"

namespace gpt::plan {

// `best`: what device: auto would choose. `gpu_present`: the system has an NVIDIA GPU, usable or not.
Check check_device(const std::string& spec, const device::DeviceInfo& device, const device::DeviceInfo& best,
                   bool gpu_present);
Check check_precision(const PrecisionConfig& config, const device::DeviceInfo& device);
// `threads`: of each of the `processes` that share the cores; 0 = all cores, divided among them.
Check check_threads(int64_t threads, int64_t cores, int64_t processes = 1);
Check lack_of_gpus(int64_t processes, int64_t gpus);
// For a run that computes on a CPU with several NUMA nodes.
Check check_numa(int64_t nodes, int64_t processes);

}  // namespace gpt::plan
