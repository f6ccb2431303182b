// A copy of a run's state in the memory of the host, from which checkpoints are written while training changes the state itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "gpt/checkpoint/state.h"

namespace gpt::checkpoint {

// Whether checkpoints of so many bytes are to be written from a copy, where there is memory for it. A small one is written sooner than
// a thread would be worth.
inline bool is_to_be_copied(AsyncCheckpoint asked, double bytes) {
  constexpr double kWorthwhile = 100e6;
  return asked == AsyncCheckpoint::on || (asked == AsyncCheckpoint::automatic && bytes >= kWorthwhile);
}

class Snapshot {
 public:
  // Bytes that a copy takes: of what this process has, where several have the state in parts.
  static uint64_t bytes_of(const Checkpoint& state);

  // A copy whose tensors lie in this snapshot's memory, until the next one is taken: that memory is kept for it. Throws
  // std::bad_alloc.
  Checkpoint take(Checkpoint state);

  void release() { memory_.reset(), bytes_ = 0; }

 private:
  std::shared_ptr<std::byte> memory_;  // apart from LibTorch's, whose peaks are those of the steps
  uint64_t bytes_ = 0;
};

}  // namespace gpt::checkpoint
