// How close the steps of a run came to what its machine could do at best.
#pragma once

#include <optional>

#include "gpt/report/listener.h"
#include "gpt/run/setup.h"

namespace gpt {

// Of so many steps of a run, from the speeds of this machine, which are measured in half a second when the steps are over: nothing of
// the run is changed by it, and how long the run took is known. Nothing for one of less than half a minute, where half a second would
// be felt, and where measuring fails. `step` and `at` are left to the caller.
std::optional<EfficiencyRecord> measure_efficiency(const run::Setup& setup, const TimingRecord& steps,
                                                   double run_seconds);

}  // namespace gpt
