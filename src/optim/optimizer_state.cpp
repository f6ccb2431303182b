#include "gpt/optim/optimizer_state.h"

#include <c10/util/accumulate.h>

#include <algorithm>

namespace gpt {

std::vector<int64_t> OptimizerSlot::shape(const ParameterRow& row) const {
  return values == 1 ? row.shape : std::vector<int64_t>{(row.count() + values - 1) / values};
}

std::span<const OptimizerSlot> optimizer_slots(StateDtype dtype) {
  static constexpr std::array kFloat32 = {OptimizerSlot{"exp_avg", at::kFloat},
                                          OptimizerSlot{"exp_avg_sq", at::kFloat}};
  static constexpr std::array kBFloat16 = {OptimizerSlot{"exp_avg", at::kBFloat16},
                                           OptimizerSlot{"exp_avg_sq", at::kBFloat16}};
  static constexpr std::array kInt8 = {OptimizerSlot{"exp_avg", at::kByte}, OptimizerSlot{"exp_avg_sq", at::kByte},
                                       OptimizerSlot{"exp_avg_max", at::kFloat, kParameterAlignment},
                                       OptimizerSlot{"exp_avg_sq_max", at::kFloat, kParameterAlignment}};
  switch (dtype) {
    case StateDtype::float32: break;
    case StateDtype::bfloat16: return kBFloat16;
    case StateDtype::int8: return kInt8;
  }
  return kFloat32;
}

StateDtype state_dtype(const ParameterRow& row, const OptimizerConfig& config) {
  if (!config.fused_adamw) return StateDtype::float32;  // only the kernel updates others
  const bool is_embedding = row.role == ParameterRole::token_embedding || row.role == ParameterRole::position_embedding;
  return is_embedding && config.float32_embedding_state ? StateDtype::float32 : config.state_dtype;
}

std::vector<StateRange> state_ranges(const std::vector<ParameterRow>& rows, const FlatLayout& layout,
                                     const OptimizerConfig& config) {
  std::vector<StateRange> ranges;
  const double on_host = config.offload * static_cast<double>(layout.trained_size);
  for (const size_t i : flat_order(rows)) {
    if (!rows[i].is_trained) break;
    const int64_t begin = layout.offsets[i], end = begin + rows[i].count();
    const StateDtype dtype = state_dtype(rows[i], config);
    const bool is_on_host = static_cast<double>(begin + end) / 2 < on_host;
    if (ranges.empty() || ranges.back().dtype != dtype || ranges.back().is_on_host != is_on_host)
      ranges.push_back({begin, 0, dtype, is_on_host});
    ranges.back().end = aligned_end(end);
  }
  return ranges;
}

StateBytes StateStretch::bytes() const {
  StateBytes bytes;
  for (const at::Tensor& slot : slots)
    (range.is_on_host ? bytes.host : bytes.device) += static_cast<int64_t>(slot.nbytes());
  return bytes;
}

StateBytes state_bytes(const std::vector<ParameterRow>& rows, const FlatLayout& layout, const OptimizerConfig& config) {
  StateBytes bytes;
  for (const StateRange& range : state_ranges(rows, layout, config)) {
    for (const OptimizerSlot& slot : optimizer_slots(range.dtype)) {
      (range.is_on_host ? bytes.host : bytes.device) +=
          (range.end - range.begin) / slot.values * static_cast<int64_t>(c10::elementSize(slot.dtype));
    }
  }
  return bytes;
}

namespace {

// Of the row that begins at `offset`, which lies in one stretch.
std::vector<at::Tensor> slots_of(const ParameterRow& row, int64_t offset, const StateStretch& stretch) {
  std::vector<at::Tensor> result;
  for (size_t i = 0; i < stretch.slots.size(); ++i) {
    const OptimizerSlot& slot = optimizer_slots(stretch.range.dtype)[i];
    const std::vector<int64_t> shape = slot.shape(row);
    const int64_t begin = (offset - stretch.range.begin) / slot.values;
    result.push_back(stretch.slots[i].narrow(0, begin, c10::multiply_integers(shape)).view(shape));
  }
  return result;
}

}  // namespace

OptimizerState named_state(const std::vector<ParameterRow>& rows, const FlatLayout& layout,
                           std::span<const StateStretch> stretches, const at::Tensor& step_count) {
  OptimizerState state;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (!rows[row].is_trained) continue;
    const int64_t begin = layout.offsets[row], end = begin + rows[row].count();
    const auto stretch = std::find_if(stretches.begin(), stretches.end(), [&](const StateStretch& candidate) {
      return candidate.range.begin <= begin && end <= candidate.range.end;
    });
    TORCH_CHECK(stretch != stretches.end(), "no state of all of '", rows[row].name, "'");
    const std::vector<at::Tensor> tensors = slots_of(rows[row], begin, *stretch);
    for (size_t i = 0; i < tensors.size(); ++i)
      state.slot(optimizer_slots(stretch->range.dtype)[i].name).emplace_back(rows[row].name, tensors[i]);
  }
  state.step_count = step_count;
  return state;
}

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
