// Who listens to a run, and what they are told at its beginning.
#pragma once

#include "gpt/config/config.h"
#include "gpt/device/device.h"
#include "gpt/report/listener.h"
#include "gpt/train/run_folder.h"
#include "gpt/train/run_plan.h"
#include "gpt/train/run_state.h"

namespace gpt {

Listeners listeners_of(const RunFolder& folder, const ReportConfig& config);

RunRecord describe_run(const Config& config, const RunState& state, const RunPlan& plan, const RunFolder& folder,
                       const DeviceInfo& device);

}  // namespace gpt
