// What an optimizer remembers from update to update: named slots, each one tensor per parameter that has it, and a count. Which
// slots a parameter has follows from the configuration; the optimizer, checkpoints and the memory estimate read it here.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpt/config/training_config.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/ops/moments.h"
#include "gpt/parameters/named_tensors.h"

namespace gpt::optim {

// Which optimizer updates a parameter, and how its state is kept: what is remembered of it.
struct StateForm {
  OptimizerKind kind = OptimizerKind::adamw;
  StateDtype dtype = StateDtype::float32;
  int64_t columns = 1;  // of a matrix that Muon updates
  bool has_average = false;

  bool operator==(const StateForm&) const = default;
};
// With an optimizer that has Muon, the blocks' matrices are its own.
StateForm state_form(const layout::ParameterRow& row, const OptimizerConfig& config);

// A tensor that the optimizer keeps for each parameter. Either it has an element for every value and the parameter's shape, or it
// has an element for every block or row of values and one dimension.
struct OptimizerSlot {
  std::string_view name;  // PyTorch's: exp_avg
  at::ScalarType dtype;
  int64_t values = 1;  // how many values of a parameter each element stands for
  bool may_be_on_host = true;

  std::vector<int64_t> shape(const layout::ParameterRow& row) const;
};

// The names of all slots that a parameter may have.
inline constexpr std::string_view kAverageSlot = "average";
inline constexpr std::array<std::string_view, 8> kOptimizerSlots = {"exp_avg",
                                                                    "exp_avg_sq",
                                                                    "exp_avg_max",
                                                                    "exp_avg_sq_max",
                                                                    "momentum_buffer",
                                                                    "momentum_buffer_max",
                                                                    "second_momentum_buffer",
                                                                    kAverageSlot};

// Slots of means, whose values may be negative; the others have means of squares and largest magnitudes.
inline bool may_be_negative(std::string_view slot) {
  return slot == "exp_avg" || slot == "momentum_buffer" || slot == kAverageSlot;
}

ops::MomentKind moment_kind(std::string_view slot);  // of a slot of codes

// AdamW: exp_avg and exp_avg_sq. Muon: momentum_buffer alone; NorMuon also second_momentum_buffer, float32, of the mean squares of rows.
// All but this are of the state's type: int8 stands for codes of ops/moments.h, and NAME_max has the largest magnitude of each block of
// kParameterAlignment values of NAME. Behind them the average of the weights, float32 and on the device wherever the others are.
std::vector<OptimizerSlot> optimizer_slots(const StateForm& form);
std::optional<size_t> place_of_slot(std::string_view name, const std::vector<OptimizerSlot>& slots);

// Stretches of the flat buffer whose parameters' state is of one form and in one place, which together are all that is trained; each
// matrix of Muon's is one alone. A parameter whose middle is within the first OptimizerConfig::offload of that has its state in the
// memory of the host.
struct StateRange {
  int64_t begin, end;  // multiples of kParameterAlignment
  StateForm form;
  bool is_on_host;
};
std::vector<StateRange> state_ranges(const std::vector<layout::ParameterRow>& rows, const layout::FlatLayout& layout,
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

// Zeros for what of these ranges lies in the spans; both are in the order of the buffer.
std::vector<StateStretch> new_state(const std::vector<StateRange>& ranges, const std::vector<layout::FlatSpan>& spans,
                                    at::Device device);

StateBytes state_bytes(std::span<const StateStretch> stretches);
StateBytes state_bytes(const std::vector<layout::ParameterRow>& rows, const layout::FlatLayout& layout,
                       const OptimizerConfig& config);

struct OptimizerState {
  std::vector<std::pair<std::string, parameters::NamedTensors>> slots;
  at::Tensor step_count;  // float32 scalar: applied updates

  // The tensors of a slot, none where there is no slot of this name; the second form appends one.
  const parameters::NamedTensors& slot(std::string_view name) const;
  parameters::NamedTensors& slot(std::string_view name);
};

// Views of stretches that together are all that is trained, by the names of the parameters.
OptimizerState named_state(const std::vector<layout::ParameterRow>& rows, const layout::FlatLayout& layout,
                           std::span<const StateStretch> stretches, const at::Tensor& step_count);

// The slots of all parameters that are trained into the stretches, which may be parts of them. What is of another type is converted, and
// then the result is true. Averages of which the configuration has none are dropped, with a line in the log. Throws gpt::Error(checkpoint)
// when the state is not that of these parameters.
bool load_state(const OptimizerState& from, const std::vector<layout::ParameterRow>& rows,
                const layout::FlatLayout& layout, const OptimizerConfig& config,
                std::span<const StateStretch> stretches);
// The same of one slot, with its largest magnitudes.
bool load_slot(std::string_view name, const OptimizerState& from, const std::vector<layout::ParameterRow>& rows,
               const layout::FlatLayout& layout, const OptimizerConfig& config,
               std::span<const StateStretch> stretches);

}  // namespace gpt::optim
