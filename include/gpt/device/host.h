// What Linux says about this machine's CPU, memory and NVIDIA driver.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace gpt::host {

constexpr int kRequiredDriver = 580;  // the first NVIDIA driver that runs CUDA 13

std::string cpu_name();
int64_t cpu_cores();               // cores of the machine, however many threads each runs; 0 where Linux does not say
std::string system_name();         // "Debian GNU/Linux 12 (bookworm), Linux 6.1.0"
bool cpu_has_bfloat16();           // instructions for it, not emulation
bool cpu_has_bfloat16_matrices();  // units that multiply matrices of them (AMX, Arm)
int64_t memory_bytes();            // memory of the machine, or the control group's limit where that is lower
int64_t unused_memory_bytes();     // the part of that which nobody uses; pages of files count as unused
// What this process may still use: limits of its group and its own count. `processes`: so many share the memory of the machine and of the
// group, but not the limits of this one (ulimit).
int64_t free_memory_bytes(int64_t processes = 1);

// What this process can still take before the kernel kills it: free memory, and what fits into swap instead. One call reads a
// few small files.
int64_t growable_memory_bytes();
int64_t shared_memory_bytes();  // the same without limits of its own (ulimit): other programs may take it too
bool limits_virtual_memory();   // ulimit -v is set

// What the control groups of this process, versions 1 and 2, leave to it: the least of its own group and those around it.
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
struct GroupMemory {
  int64_t limit = kUnlimited;
  int64_t free = kUnlimited;      // pages of files count as used, but the kernel gives them up: they are free
  int64_t growable = kUnlimited;  // free, and the swap that the group may use
};
GroupMemory group_memory(int64_t free_swap, const std::string& root = "");  // `root` stands for / in a test

bool has_nvidia_gpu();                // known to the kernel, whether or not this build can use it
std::string nvidia_driver_version();  // "580.65.06", empty without a driver

}  // namespace gpt::host
