// What ends or interrupts a run from outside: signals, a lack of memory and requests. All processes must decide alike, so each says what it knows,
// and all follow what any of them has said.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "gpt/distributed/communicator.h"

namespace gpt::run {

struct Interruption {
  int64_t stop_signal = 0;    // that has been received; 0: none
  bool lacks_memory = false;  // other programs take it
  bool saves = false;         // SIGUSR1 has asked for a checkpoint
  bool is_time = false;       // for a checkpoint that is due by the clock
  bool is_asked = false;      // requests have come to the first process (control/inbox.h)
  int64_t total_steps = 0;    // after which the run is to end instead, by the clock of the first process; 0: as before

  bool stops() const { return stop_signal != 0 || lacks_memory; }
};

// Before a run has begun there is nothing to save: throws gpt::Error(interrupted) with `message` where a signal has been received.
void require_no_signal(const Interruption& agreed, const char* message);

class Interruptions {
 public:
  explicit Interruptions(std::shared_ptr<distributed::Communicator> ranks) : ranks_(std::move(ranks)) {}

  // One process: `mine`. Several, which must call it at the same points: what any of them said when it was called before, so that nobody
  // waits for an answer.
  Interruption agree(const Interruption& mine);

 private:
  std::shared_ptr<distributed::Communicator> ranks_;
  at::Tensor said_;  // (6) int64
  std::function<void()> answer_;
};

}  // namespace gpt::run
