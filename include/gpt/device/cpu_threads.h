// The threads that LibTorch computes with on the CPU.
#pragma once

#include <cstdint>

namespace gpt {

// `count` threads; 0 = LibTorch's choice, one per core. Call it after process::watch_signals(), whose signals these
// threads must not receive. How long a waiting thread spins before it sleeps is set in core/process and cmake/OpenMP.cmake.
void use_cpu_threads(int64_t count);

}  // namespace gpt
