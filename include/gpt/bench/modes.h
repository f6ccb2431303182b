// The modes of training.compile_mode beside LibTorch's operators, in alternating runs: `gpt-bench modes`.
#pragma once

#include <cstdint>
#include <vector>

#include "gpt/bench/findings.h"
#include "gpt/bench/ladder.h"
#include "gpt/bench/rung.h"
#include "gpt/device/device.h"

namespace gpt::bench {

struct ModesEffort {
  int64_t epochs = 3;      // times that each mode is measured, in turn
  int64_t iterations = 0;  // updates that are timed each time; 0: as many as fit into `seconds`
  double seconds = 600;
};

struct Modes {
  std::vector<LadderRow> rows;  // the first is without use_compile; `gain`: median speed over it in the same epoch
  int64_t epochs = 0;           // complete ones; where a signal stopped one, the rows have what it measured
  MeasurementLength length;
  bool complete = false;
};

Modes measure_modes(const Wanted& wanted, const device::DeviceInfo& device, const ModesEffort& effort,
                    const Measure& measure, const Progress& progress);

Findings findings(const Modes& modes);

}  // namespace gpt::bench
