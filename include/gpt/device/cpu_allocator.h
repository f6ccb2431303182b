// Memory for LibTorch's tensors on the CPU. A training step asks for the same large blocks again and again. malloc either
// returns them to the kernel, which then faults in and zeroes every page anew, or keeps them among small objects, which pin the
// gaps between them. Here they lie in one address range of their own: the smallest gap that fits is taken, neighbours that are
// free become one, and pages once touched stay with the process. Small tensors still come from malloc.
#pragma once

#include <cstdint>

namespace gpt {

// Makes LibTorch use it, for the rest of the process. Under a limit on virtual memory (ulimit -v) LibTorch keeps its own
// allocator.
void use_cpu_allocator();

// Of large tensors, in bytes; zeros where the allocator is not in use.
struct CpuMemory {
  int64_t in_use = 0;
  int64_t peak = 0;    // of in_use, since the start or reset_cpu_memory_peak()
  int64_t extent = 0;  // of the range that was ever in use: what the process holds
};
CpuMemory cpu_memory();
void reset_cpu_memory_peak();

}  // namespace gpt
