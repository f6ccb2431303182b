// What this machine has, and what of it this build can really use: CPU, memory, NVIDIA driver and every GPU.
#pragma once

#include <cstdint>
#include <string>

#include "gpt/device/cpu_bfloat16.h"
#include "gpt/plan/check.h"

namespace gpt::diagnose {

// Measures, then judges by the functions below. Takes a second or two: every feature is tried.
plan::Checks check_machine();

// The state of CUDA here. `fault`: why there is no usable GPU, in select_device's words; empty if there is one.
struct CudaState {
  bool built = false;        // this build has CUDA code
  bool gpu_present = false;  // known to the system, usable or not
  std::string driver;        // "580.65.06"; empty without one
  std::string versions;      // versions of driver, runtime and cuDNN, where they could be queried
  std::string fault;
};
plan::Check check_cuda(const CudaState& state);

plan::Check check_instructions(bool avx2, bool avx512, device::CpuBfloat16 bfloat16, bool amx);
plan::Check check_free_memory(const std::string& name, int64_t free_bytes, int64_t total_bytes);

}  // namespace gpt::diagnose
