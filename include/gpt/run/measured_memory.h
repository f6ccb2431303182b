// What a run's tensors take, measured: on a CPU through this program's allocator, on a GPU through LibTorch's.
#pragma once

#include <optional>

#include "gpt/report/memory_use.h"
#include "gpt/run/state.h"
#include "gpt/run/train_step.h"

namespace gpt::run {

// At the peak so far. Nothing where nobody counts, or before a second update has found all buffers in place.
std::optional<report::MemoryUse> measured_memory(const State& state, const TrainStep& step);
// The same from the start; until the second update, `activations` holds the workspace as well.
std::optional<report::MemoryUse> memory_at_peak(const State& state, const TrainStep& step);

}  // namespace gpt::run
