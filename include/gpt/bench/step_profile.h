// Where the time of a training step goes, part by part, how far each is from what this machine can do, and which settings would change
// that: `gpt-bench profile`.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/bench/effort.h"
#include "gpt/bench/findings.h"
#include "gpt/bench/rung.h"
#include "gpt/device/device.h"
#include "gpt/plan/limits.h"
#include "gpt/report/memory_use.h"

namespace gpt::bench {

struct PartTime {
  std::string name;
  double ms = 0;           // in a step: medians
  double backward_ms = 0;  // the part of it in the backward pass
  plan::Work work = {};    // at least, in a step
};

struct StepProfile {
  UpdateConfig config;  // as it was run, except for training.compile_mode, which is the one asked for
  device::DeviceInfo device;
  at::ScalarType type = at::kFloat;  // the type of products
  int64_t threads = 0;
  std::vector<PartTime> parts;    // in the order of a step; the last is what lies between them
  double step_ms = 0;             // the median
  double mean_ms = 0;             // the mean of the same steps
  double cpu_ms = 0;              // CPU time of all threads in a step: a mean too
  double launched_ms = 0;         // until the host had launched a step's work
  plan::MachineSpeed speed = {};  // measured before and after the steps
  int64_t updates = 0;            // updates that were timed
  bool is_resident = false;       // the tokens are on the device
  std::optional<report::MemoryUse> memory = {};
  bool complete = true;  // not stopped by a signal
};

// Times steps of a new run of `wanted` for about `seconds`, without recording them as graphs. `progress` is called with the share
// that is done. A signal ends it early; throws gpt::Error(interrupted) where there are fewer than five steps then.
StepProfile profile_steps(const Wanted& wanted, double seconds, const Progress& progress);

// What to change, in words; the largest matter first.
std::vector<std::string> advice(const StepProfile& profile);

Findings findings(const StepProfile& profile);

}  // namespace gpt::bench
