// A starting point from which there is nothing left to do, and what to say about it.
#pragma once

#include <optional>
#include <string>

#include "gpt/config/config.h"
#include "gpt/config/origins.h"
#include "gpt/run/folder.h"
#include "gpt/run/plan.h"

namespace gpt::run {

struct FinishedRun {
  std::string fact, remedy;
  bool is_foreign = false;  // the checkpoint lies in another folder than the run's: nothing was done here
};

// Nothing where the run has steps to do, and patience for them, or the evaluation of its last one. A run that is beyond its last step,
// which was lowered, has nothing to do either.
std::optional<FinishedRun> find_finished(const StartingPoint& start, const Config& config,
                                         const config::Origins& origins, const Plan& plan, bool has_validation);

}  // namespace gpt::run
