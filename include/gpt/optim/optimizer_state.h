// What an optimizer remembers from update to update: named slots, each one tensor per parameter that has it, and a count. Which
// slots a parameter has follows from the configuration; the optimizer, checkpoints and the memory estimate read it here.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpt/config/training_config.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/parameters/named_tensors.h"

namespace gpt {

// A tensor that the optimizer keeps for each parameter. Either it has an element for every value and the parameter's shape, or it
// has an element for every block of values and one dimension.
struct OptimizerSlot {
  std::string_view name;  // PyTorch's: exp_avg
  at::ScalarType dtype;
  int64_t values = 1;  // how many values of a parameter each element stands for

  std::vector<int64_t> shape(const ParameterRow& row) const;
};

// The names of all slots that a parameter may have.
inline constexpr std::array<std::string_view, 4> kOptimizerSlots = {"exp_avg", "exp_avg_sq", "exp_avg_max",
                                                                    "exp_avg_sq_max"};

// float32, bfloat16: exp_avg and exp_avg_sq. int8: both as codes of ops/moments.h, and the largest magnitude of each block of
// kParameterAlignment values, exp_avg_max and exp_avg_sq_max.
std::span<const OptimizerSlot> optimizer_slots(StateDtype dtype);

StateDtype state_dtype(const ParameterRow& row, const OptimizerConfig& config);

// Stretches of the flat buffer whose parameters' state is of one type and in one place, which together are all that is trained. A
// parameter whose middle is within the first OptimizerConfig::offload of that has its state in the memory of the host.
struct StateRange {
  int64_t begin, end;  // multiples of kParameterAlignment
  StateDtype dtype;
  bool is_on_host;
};
std::vector<StateRange> state_ranges(const std::vector<ParameterRow>& rows, const FlatLayout& layout,
                                     const OptimizerConfig& config);
struct StateBytes {
  int64_t device = 0, host = 0;
};

// What is remembered of such a stretch: its slots, in the order of optimizer_slots().
struct StateStretch {
  StateRange range;
  std::vector<at::Tensor> slots;  // each (n), for all values from the beginning to the end of the range

  StateBytes bytes() const;
};

StateBytes state_bytes(const std::vector<ParameterRow>& rows, const FlatLayout& layout, const OptimizerConfig& config);

struct OptimizerState {
  std::vector<std::pair<std::string, NamedTensors>> slots;
  at::Tensor step_count;  // float32 scalar: applied updates

  // The tensors of a slot, none where there is no slot of this name; the second form appends one.
  const NamedTensors& slot(std::string_view name) const;
  NamedTensors& slot(std::string_view name);
};

// Views of stretches that together are all that is trained, by the names of the parameters.
OptimizerState named_state(const std::vector<ParameterRow>& rows, const FlatLayout& layout,
                           std::span<const StateStretch> stretches, const at::Tensor& step_count);

}  // namespace gpt
