// What a run's tensors take, measured: on a CPU through this program's allocator, on a GPU through LibTorch's.
#pragma once

#include <optional>

#include "gpt/report/memory_use.h"
#include "gpt/train/run_state.h"
#include "gpt/train/train_step.h"

namespace gpt {

// At the peak so far. Nothing where nobody counts, or before a second update has found all buffers in place.
std::optional<MemoryUse> measured_memory(const RunState& state, const TrainStep& step);
// The same from the start; until the second update, `activations` holds the workspace as well.
std::optional<MemoryUse> memory_at_peak(const RunState& state, const TrainStep& step);

}  // namespace gpt
