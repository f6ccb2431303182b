#include "gpt/run/measured_memory.h"

#include <algorithm>

#include "gpt/device/device.h"

namespace gpt::run {

std::optional<report::MemoryUse> measured_memory(const State& state, const TrainStep& step) {
  return step.kept_bytes() == 0 ? std::nullopt : memory_at_peak(state, step);
}

std::optional<report::MemoryUse> memory_at_peak(const State& state, const TrainStep& step) {
  const auto peak = static_cast<double>(device::peak_tensor_bytes(state.model.device())),
             kept = step.kept_bytes() == 0 ? peak : static_cast<double>(step.kept_bytes());
  if (peak == 0) return std::nullopt;
  report::MemoryUse use{.weights = static_cast<double>(state.model.parameters().value_bytes()),
                        .gradients = static_cast<double>(step.gradient_bytes()),
                        .optimizer = static_cast<double>(state.optimizer->bytes().device),
                        .teacher = step.teacher() ? step.teacher()->bytes() : 0,
                        .data = static_cast<double>(state.loader.device_bytes()),
                        .host = static_cast<double>(state.optimizer->bytes().host + state.model.swapped_bytes())};
  const double lasting = use.total(), of_libraries = static_cast<double>(device::library_bytes(state.model.device()));
  use.activations = std::max(0.0, kept - lasting - of_libraries);
  use.workspace = std::max(0.0, peak - lasting - use.activations);
  return use;
}

}  // namespace gpt::run
