// Starts the processes of a run on this machine, watches them, and starts them again where one is lost. They meet at a socket of the
// loopback that is bound before the first of them begins, so that no port is raced for and nothing can be reached from outside.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/config/distributed_config.h"
#include "gpt/core/error.h"

namespace gpt::distributed {

// How a process ended.
struct Ending {
  int64_t rank = 0;
  int status = 0;           // its exit status; 128 + N after signal N
  int signal = 0;           // that ended it; 0: it ended itself
  bool is_stopped = false;  // it was stopped (SIGSTOP) and had to be killed
};

// The exit status of a run whose processes ended so, in this order: that of a process which failed by itself, the first one's before the
// others'; `peer` where one was killed or only missed another.
int status_of(const std::vector<Ending>& endings);

// How many processes go on after these have ended, which were `config.processes`, or fewer after an earlier restart: as many as before,
// or, where min_processes allows fewer, those that were not killed, as far as the lanes, and the model, can be divided among them. Nothing:
// too few.
std::optional<int64_t> processes_after(const std::vector<Ending>& endings, const DistributedConfig& config);

// How long to wait after so many starts in a row that saved nothing, before the next one.
std::chrono::seconds pause_after(int64_t fruitless_starts);

// Runs config.processes copies of `command`, a program and its arguments. Signals that ask this process to stop are passed on; before all
// copies have met, they are ended at once. `checkpoint`: the file that changes where a start has saved something. Returns the run's exit
// status. Throws gpt::Error where a process cannot be started.
int launch(const std::vector<std::string>& command, const DistributedConfig& config, const std::string& checkpoint);

}  // namespace gpt::distributed
