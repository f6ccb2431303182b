// Checks a whole configuration against this machine and its data.
#pragma once

#include "gpt/config/load.h"
#include "gpt/diagnose/plan_options.h"
#include "gpt/plan/check.h"

namespace gpt::diagnose {

// What a run of the command's configuration would meet. A user error is a failed check and never an exception; only a signal
// ends it early, with gpt::Error(interrupted).
plan::Checks check_configuration(const config::CommandLine& command, const PlanOptions& asked);

}  // namespace gpt::diagnose
