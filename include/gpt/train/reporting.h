// Who listens to a run, and what they are told at its beginning.
#pragma once

#include <string>
#include <vector>

#include "gpt/config/config.h"
#include "gpt/report/listener.h"
#include "gpt/train/run_folder.h"
#include "gpt/train/run_plan.h"
#include "gpt/train/run_setup.h"
#include "gpt/train/run_state.h"

namespace gpt {

Listeners listeners_of(const RunFolder& folder, const ReportConfig& config);

// `changes`: since the checkpoint, of a run that resumes.
RunRecord describe_run(const RunSetup& setup, const RunState& state, const RunPlan& plan, const RunFolder& folder,
                       std::vector<std::string> changes);

}  // namespace gpt
