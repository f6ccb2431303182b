// What gpt-train says when a run could not get memory: what held it, and which settings would make the run fit.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "gpt/config/config.h"
#include "gpt/core/error.h"
#include "gpt/data/corpus.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"
#include "gpt/diagnose/model_checks.h"
#include "gpt/train/out_of_memory.h"

namespace gpt {

// The lines below that of the error, from numbers alone. `attention`: the kernel's name; `memory`: what the run may use.
std::vector<std::string> explain_shortage(const Shortage& shortage, const Config& config, const DeviceInfo& device,
                                          const std::string& attention, const MemoryBudget& memory);

// Logs `error`, for which process::is_out_of_memory() holds, with these lines, and returns the exit status. The run's tensors
// must be gone. `checkpoint`: the file that the run resumed from, if it did.
ExitCode explain_out_of_memory(const std::exception& error, Config config, const Corpus& corpus,
                               const DeviceInfo& device, const Precision& precision, const std::string& checkpoint);

}  // namespace gpt
