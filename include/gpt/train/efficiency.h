// How close the steps of a run came to what a large product and a large copy would allow.
#pragma once

#include <optional>

#include "gpt/plan/limits.h"
#include "gpt/report/listener.h"
#include "gpt/run/setup.h"

namespace gpt::train {

// Measures the speeds of this machine between steps or after them, so that nothing of the run is changed by it. The highest of all that were
// measured count. `step` and `at` of the records are left to the caller.
class EfficiencyMeter {
 public:
  explicit EfficiencyMeter(const run::Setup& setup) : setup_(setup) {}

  // The efficiency of these steps, after half a second for the speeds. Nothing for a run of less than half a minute, where half a second
  // would be felt, and where measuring fails.
  std::optional<report::EfficiencyRecord> measure(const report::TimingRecord& steps, double run_seconds);
  // The same from the speeds that are known already: nothing where there are none.
  std::optional<report::EfficiencyRecord> of(const report::TimingRecord& steps) const;
  bool has_tried() const { return has_tried_; }  // to measure, whether that failed or not

 private:
  const run::Setup& setup_;
  plan::MachineSpeed speed_;
  bool has_tried_ = false;
};

}  // namespace gpt::train
