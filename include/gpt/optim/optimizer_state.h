// What an optimizer remembers from update to update: named slots, each one tensor per parameter, and a count. An optimizer
// lists its slots; checkpoints, their Python view and the memory estimate read that list.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpt/parameters/named_tensors.h"

namespace gpt {

struct OptimizerSlot {
  std::string_view name;  // PyTorch's: exp_avg
  at::ScalarType dtype;
  int64_t bytes_per_parameter() const { return static_cast<int64_t>(c10::elementSize(dtype)); }
};

struct OptimizerState {
  std::vector<std::pair<std::string, NamedTensors>> slots;  // in the order in which the optimizer lists them
  at::Tensor step_count;                                    // float32 scalar: applied updates

  // The tensors of a slot, none where there is no slot of this name; the second form appends one.
  const NamedTensors& slot(std::string_view name) const;
  NamedTensors& slot(std::string_view name);
};

}  // namespace gpt
