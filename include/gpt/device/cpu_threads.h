// The threads that LibTorch computes with on the CPU.
#pragma once

#include <cstdint>

namespace gpt {

// `count` threads; 0 = LibTorch's choice, one per core. Call it behind process::watch_signals(), whose signals its threads
// must not take. On a machine of few processors threads that wait for others then sleep at once; where the environment
// sets OMP_WAIT_POLICY or GOMP_SPINCOUNT, they do what it says.
void use_cpu_threads(int64_t count);

}  // namespace gpt
