#include "gpt/optim/optimizer_state.h"

#include <algorithm>

namespace gpt {

const NamedTensors& OptimizerState::slot(std::string_view name) const {
  static const NamedTensors none;
  const auto found = std::find_if(slots.begin(), slots.end(), [&](const auto& slot) { return slot.first == name; });
  return found == slots.end() ? none : found->second;
}

NamedTensors& OptimizerState::slot(std::string_view name) {
  const auto found = std::find_if(slots.begin(), slots.end(), [&](const auto& slot) { return slot.first == name; });
  return found == slots.end() ? slots.emplace_back(name, NamedTensors{}).second : found->second;
}

}  // namespace gpt
