// What each setting that saves memory saves, and what it costs in time: `gpt-bench memory`.
#pragma once

#include <string>
#include <vector>

#include "gpt/bench/effort.h"
#include "gpt/bench/findings.h"
#include "gpt/bench/ladder.h"
#include "gpt/bench/rung.h"
#include "gpt/device/device.h"

namespace gpt::bench {

struct Savings {
  // The first is the baseline: float32, LibTorch's operators, nothing saved. `gain` of another is its speed over the baseline in
  // alternating runs.
  std::vector<LadderRow> rows;
  MeasurementLength length;
  bool complete = false;
};

// Savers that are measured; `gpt-bench combo` takes their names.
std::vector<Rung> savers(const Wanted& wanted, const device::DeviceInfo& device);

Savings measure_savers(const Wanted& wanted, const std::vector<Rung>& savers, double seconds, const Measure& measure,
                       const Progress& progress);

Findings findings(const Savings& savings);

}  // namespace gpt::bench
