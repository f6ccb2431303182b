// How the processes of a run find each other: at an address that their launcher names or, where it names none, at the one that the first
// process writes into a file of the run's folder. Such a file is not believed because it is there: a killed run may have left it. Only who
// answers at that address and knows the number in the file is the first process.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "gpt/core/process.h"
#include "gpt/distributed/ranks.h"
#include "gpt/distributed/watch.h"
#include "sockets.h"

namespace gpt::distributed {

using StorePointer = c10::intrusive_ptr<c10d::Store>;

struct Meeting {
  StorePointer store;  // in which all say what the others hear
  std::unique_ptr<Watch> watch;
};

// Waits until all have come. `timeout`: see Watch. Throws gpt::Error: peer where some do not come, interrupted after a signal.
Meeting meet(const Ranks& ranks, const std::string& folder, std::chrono::duration<double> timeout);

// The result of `work`, which waits for other processes in a library that knows nothing of signals. After one it is left behind: throws
// gpt::Error(interrupted). What it uses must be its own.
template <typename Work>
auto unless_stopped(Work work) {
  constexpr std::chrono::milliseconds kLookAgain(20);
  std::packaged_task<decltype(work())()> task(std::move(work));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  while (result.wait_for(kLookAgain) != std::future_status::ready) {
    if (process::stop_signal() == 0) continue;
    leave_if_stopped();
  }
  return result.get();
}

}  // namespace gpt::distributed
