// What Linux says about this machine's CPU, memory and NVIDIA driver.
#pragma once

#include <cstdint>
#include <string>

namespace gpt::host {

constexpr int kRequiredDriver = 580;  // the first NVIDIA driver that runs CUDA 13

std::string cpu_name();
bool cpu_has_bfloat16();        // instructions for it, not emulation
int64_t memory_bytes();         // of the machine, or the control group's limit where that is lower
int64_t free_memory_bytes();    // that this process may still use: limits of its group and its own count
bool limits_virtual_memory();   // ulimit -v is set
int64_t resident_bytes();       // of this process
int64_t peak_resident_bytes();  // of this process, since its start

bool has_nvidia_gpu();                // known to the kernel, whether or not this build can use it
std::string nvidia_driver_version();  // "580.65.06", empty without a driver

}  // namespace gpt::host
