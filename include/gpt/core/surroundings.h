// What libraries take for granted of the system and of the environment, and would otherwise end the program for want of, without a line that a
// user understands. Functions throw gpt::Error, which says what is missing and what to do.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace gpt::surroundings {

// For every program, before anything else: room for the stack (ulimit -s), which is made where that is allowed, and OMP_NUM_THREADS.
void require_sane_limits();

// The file that LLVM's OpenMP writes when it starts, under the number of this process, and removes when it ends. A process that is killed
// leaves it, 4 kB of memory, and a later process of the same number reads it: an empty one ends that with SIGBUS. So it is removed before
// OpenMP starts, since nobody else has this number, and when it has started, since copies of OpenMP in one process alone would read it; and
// where the program ends, since programs end without destructors.
void remove_openmp_file(const std::string& folder = "/dev/shm");

// For what computes: shared memory, which LLVM's OpenMP writes to, and the system's random numbers, which LibTorch reads.
void require_shared_memory(const std::string& folder = "/dev/shm");
void require_random_numbers(const std::string& device = "/dev/urandom");

// So many threads can run beside this one: OpenMP ends the program where it cannot start one.
void require_threads(int64_t count);

// Why a thread or a process could not be started.
bool is_lack_of_threads(const std::exception& error);
inline constexpr const char* kThreadsRemedy =
    "the limit of threads and processes is reached (ulimit -u, or pids.max of the control group): raise it, or stop other programs";

// A thread that the program can do without: none where the system refuses it.
template <typename Work>
std::thread thread_if_possible(Work work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error&) { return {}; }
}

}  // namespace gpt::surroundings
