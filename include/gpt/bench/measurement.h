// How fast a configuration trains on this machine: some updates of a new run on the real data, each of them timed.
#pragma once

#include <c10/core/DeviceType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gpt/config/config.h"
#include "gpt/core/statistics.h"
#include "gpt/plan/limits.h"

namespace gpt::bench {

struct MeasurementLength {
  int64_t warm_up = 5;  // updates before the clock starts
  int64_t updates = 30;
};

struct Measurement {
  double step_ms = 0;                     // the median update, or the median of the means of groups
  double cpu_ms = 0;                      // CPU time of an update, all threads together
  double tokens_per_second = 0;           // the median update's, or the median of the groups'
  int64_t peak_bytes = 0;                 // bytes of the process on a CPU, of tensors on a GPU
  int64_t tensor_bytes = 0;               // at their peak; 0: not known
  int64_t threads = 0;                    // CPU threads that LibTorch used
  double loss = 0;                        // mean over the last ten updates
  double start_seconds = 0;               // until the first update
  std::vector<plan::PartWork> work = {};  // the least that an update has to do
};

// How many of `updates` are launched and timed together before a GPU is waited for: those of a tenth of a second, so that the wait,
// which gpt-train does without, takes none of the time. On a CPU one.
int64_t updates_between_waits(c10::DeviceType device, double update_seconds, int64_t updates);

// Updates that were timed together.
struct TimedGroup {
  int64_t updates, tokens;
  double seconds;
};
// What most groups are like: an epoch may end within one, with fewer tokens and in less time.
struct TypicalUpdate {
  double seconds, tokens, tokens_per_second;
};
TypicalUpdate typical_update(const std::vector<TimedGroup>& groups);

// In this process, which draws from its random state: no run may follow. Throws gpt::Error(interrupted) on a signal.
Measurement measure(const Config& config, const MeasurementLength& length);

std::string to_json(const Measurement& measurement);
Measurement measurement_from_json(const std::string& text);

std::string to_json(const plan::MachineSpeed& speed);
plan::MachineSpeed machine_speed_from_json(const std::string& text);

}  // namespace gpt::bench
