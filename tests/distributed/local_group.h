// Several processes of a run, played by threads of the test: each has a group of its own, and they meet in a file.
#pragma once

#include <ATen/Parallel.h>

#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/distributed/group.h"

namespace gpt::test {

inline distributed::Ranks local_rank(int64_t rank, int64_t size) {
  return {.rank = rank, .size = size, .local_rank = rank, .local_size = size, .launcher = "a test"};
}

// Calls work(group) in `size` threads that compute with one thread each. Rethrows what the first of them threw.
template <typename Work>
void in_ranks(int64_t size, const Work& work, double timeout = 60) {
  const ScratchFolder folder;
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      try {
        distributed::Group group(local_rank(rank, size), at::kCPU, folder.path(), timeout);
        try {
          work(group);
        } catch (const std::exception& error) {
          group.leave(error.what());
          throw;
        }
      } catch (...) { errors[static_cast<size_t>(rank)] = std::current_exception(); }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace gpt::test
