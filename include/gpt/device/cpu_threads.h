// The threads that LibTorch computes with on the CPU.
#pragma once

#include <cstdint>
#include <optional>

namespace gpt::device {

// `count` threads; 0 = one per core that this process may use, or what OMP_NUM_THREADS or MKL_NUM_THREADS says. Where several `processes` of
// a run share the machine, its cores are divided among them, whatever the launcher has set, and process `local_rank` keeps to its part of the
// NUMA nodes (nodes_of_process()). Fewer, and a line that says so, where
// OpenMP gives fewer: OMP_THREAD_LIMIT, or OMP_DYNAMIC, which is turned off. LibTorch's products of 16 bits are wrong where a team is
// smaller than the number that was set. Says too when OpenMP is not the one that the programs bring. Every program that computes calls it
// before it does, and after process::watch_signals(), whose signals these threads must not receive. How long a waiting thread spins
// before it sleeps is set in core/process and cmake/OpenMP.cmake.
void use_cpu_threads(int64_t count, int64_t processes = 1, std::optional<int64_t> local_rank = {});

// In this thread alone, which works while others compute with all.
void use_one_cpu_thread();

}  // namespace gpt::device
