// Who listens to a run, and what they are told at its beginning.
#pragma once

#include <string>
#include <vector>

#include "gpt/config/config.h"
#include "gpt/report/listener.h"
#include "gpt/run/folder.h"
#include "gpt/run/plan.h"
#include "gpt/run/setup.h"
#include "gpt/run/state.h"

namespace gpt {

Listeners listeners_of(const run::Folder& folder, const ReportConfig& config);

// `changes`: since the checkpoint, of a run that resumes.
RunRecord describe_run(const run::Setup& setup, const run::State& state, const run::Plan& plan,
                       const run::Folder& folder, std::vector<std::string> changes);

}  // namespace gpt
