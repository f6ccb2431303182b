// What NVML, NVIDIA's library for watching GPUs, says. It comes with the driver, so that it is looked for when a run begins: programs are the
// same without it. Its own functions and types are declared here, as its ABI has kept them since 2013; those that a driver lacks or a GPU
// does not support leave out what they would have said.
#pragma once

#include <string>

#include "gpt/device/device_sensor.h"

namespace gpt::device {

// A GPU as NVML knows it. CUDA's numbers are others: CUDA_VISIBLE_DEVICES changes them.
struct GpuAddress {
  std::string uuid;  // "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", of a GPU or of a part of one (MIG)
  std::string pci;   // "00000000:65:00.0"
};

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

FoundSensor find_nvml_sensor(const GpuAddress& gpu, const std::string& library = kNvmlLibrary);

}  // namespace gpt::device
