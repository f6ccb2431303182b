// Who listens to a run, and what they are told at its beginning.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpt/config/config.h"
#include "gpt/report/listener.h"
#include "gpt/report/result_file.h"
#include "gpt/run/folder.h"
#include "gpt/run/run.h"
#include "gpt/run/state.h"

namespace gpt::train {

report::Moment moment_of(const run::State& state);  // now

// `result` may be null. `on_event`: training.on_event.
report::Listeners listeners_of(const run::Folder& folder, const ReportConfig& config,
                               std::unique_ptr<report::ResultFile> result,
                               const std::vector<std::string>& on_event = {});

// `changes`: since the checkpoint, of a run that resumes.
report::RunRecord describe_run(const run::Run& run, const run::Folder& folder, std::vector<std::string> changes);

}  // namespace gpt::train
