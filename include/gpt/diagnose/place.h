// What a run would compute on: this machine, or another one that is asked about.
#pragma once

#include <optional>

#include "gpt/config/load.h"
#include "gpt/device/device.h"
#include "gpt/diagnose/plan_options.h"
#include "gpt/plan/check.h"
#include "gpt/plan/model_checks.h"

namespace gpt::diagnose {

struct Place {
  device::DeviceInfo device;
  plan::MemoryBudget memory;  // what each process may use, here or where it is asked about
  double free_here = 0;       // bytes for a trial
};

// Adds what it finds to `checks`. `precision`: the run's, which is chosen again where the device lacks the one of its checkpoint. Nothing
// where the run cannot compute there. Throws gpt::Error(config) where there is no such device.
std::optional<Place> examine_place(const config::CommandLine& command, const PlanOptions& options,
                                   PrecisionConfig& precision, plan::Checks& checks);

}  // namespace gpt::diagnose
