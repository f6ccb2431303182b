// Memory for LibTorch's tensors on the CPU. A training step asks for the same large blocks again and again. malloc either
// returns them to the kernel, which then faults in and zeroes every page anew, or keeps them among small objects, which pin the
// gaps between them. Here they lie in one address range of their own: the smallest gap that fits is taken, neighbours that are
// free become one, and pages once touched stay with the process. Small tensors still come from malloc.
//
// A kernel promises more than it has and kills the process that takes the promise up. So the range grows only while there is
// memory for it; otherwise c10::OutOfMemoryError is thrown, as everywhere in LibTorch. It is no guarantee: a block that nobody has
// touched yet counts as free when the range grows again, and so do pages that release_cpu_memory() gave back.
#pragma once

#include <cstdint>
#include <functional>

namespace gpt::device {

// Makes LibTorch use it, for the rest of the process. Under a limit on virtual memory (ulimit -v) LibTorch keeps its own
// allocator.
void use_cpu_allocator();

// How many bytes the range may still grow by, asked whenever it does, 64 MB at a time while there are so many. From the start:
// host::growable_memory_bytes(), but for a little that everything else needs. Without a function the kernel alone decides.
void limit_cpu_memory(std::function<int64_t()> room);
int64_t growable_by_tensors();  // the one from the start

// Gives back the pages of the range that no tensor uses; when they are used again, they are taken anew.
void release_cpu_memory();

// What large tensors take, in bytes; zeros where the allocator is not in use.
struct CpuMemory {
  int64_t in_use = 0;
  int64_t peak = 0;    // the highest in_use since the start or reset_cpu_memory_peak()
  int64_t extent = 0;  // the range that was in use since the start or release_cpu_memory(): what the process holds
};
CpuMemory cpu_memory();
void reset_cpu_memory_peak();

}  // namespace gpt::device
