#include "gpt/optim/optimizer_state.h"

#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

#include <algorithm>

#include "gpt/device/memory.h"
#include "gpt/ops/moments.h"

namespace gpt::optim {

std::vector<int64_t> OptimizerSlot::shape(const layout::ParameterRow& row) const {
  return values == 1 ? row.shape : std::vector<int64_t>{(row.count() + values - 1) / values};
}

namespace {

bool is_matrix_of_block(const layout::ParameterRow& row) {
  switch (row.role) {
    case layout::ParameterRole::attention_in:
    case layout::ParameterRole::attention_out:
    case layout::ParameterRole::mlp_gate:
    case layout::ParameterRole::mlp_in:
    case layout::ParameterRole::mlp_out: return !row.is_bias;
    default: return false;
  }
}

StateDtype state_dtype(const layout::ParameterRow& row, const OptimizerConfig& config) {
  if (!config.fused_adamw) return StateDtype::float32;  // only the kernel updates others
  const bool is_embedding =
      row.role == layout::ParameterRole::token_embedding || row.role == layout::ParameterRole::position_embedding;
  return is_embedding && config.float32_embedding_state ? StateDtype::float32 : config.state_dtype;
}

at::ScalarType type_of(StateDtype dtype) {
  switch (dtype) {
    case StateDtype::float32: break;
    case StateDtype::bfloat16: return at::kBFloat16;
    case StateDtype::int8: return at::kByte;
  }
  return at::kFloat;
}

}  // namespace

StateForm state_form(const layout::ParameterRow& row, const OptimizerConfig& config) {
  StateForm form{.dtype = state_dtype(row, config), .has_average = config.has_averages()};
  if (config.has_muon() && is_matrix_of_block(row)) form.kind = config.kind, form.columns = row.shape.at(1);
  return form;
}

ops::MomentKind moment_kind(std::string_view slot) {
  return may_be_negative(slot) ? ops::MomentKind::first : ops::MomentKind::second;
}

std::optional<size_t> place_of_slot(std::string_view name, const std::vector<OptimizerSlot>& slots) {
  for (size_t i = 0; i < slots.size(); ++i)
    if (slots[i].name == name) return i;
  return std::nullopt;
}

std::vector<OptimizerSlot> optimizer_slots(const StateForm& form) {
  const at::ScalarType type = type_of(form.dtype);
  const bool has_maxima = type == at::kByte;
  std::vector<OptimizerSlot> slots;
  if (form.kind == OptimizerKind::adamw) {
    slots = {{"exp_avg", type}, {"exp_avg_sq", type}};
    if (has_maxima)
      slots.insert(slots.end(), {{"exp_avg_max", at::kFloat, layout::kParameterAlignment},
                                 {"exp_avg_sq_max", at::kFloat, layout::kParameterAlignment}});
  } else {
    slots = {{"momentum_buffer", type}};
    if (has_maxima) slots.push_back({"momentum_buffer_max", at::kFloat, layout::kParameterAlignment});
    if (form.kind == OptimizerKind::normuon) slots.push_back({"second_momentum_buffer", at::kFloat, form.columns});
  }
  if (form.has_average) slots.push_back({.name = kAverageSlot, .dtype = at::kFloat, .may_be_on_host = false});
  return slots;
}

std::vector<StateRange> state_ranges(const std::vector<layout::ParameterRow>& rows, const layout::FlatLayout& layout,
                                     const OptimizerConfig& config) {
  std::vector<StateRange> ranges;
  const double on_host = config.offload * static_cast<double>(layout.trained_size);
  for (const size_t i : layout::flat_order(rows)) {
    if (!rows[i].is_trained) break;
    const int64_t begin = layout.offsets[i], end = begin + rows[i].count();
    const StateForm form = state_form(rows[i], config);
    const bool is_on_host = static_cast<double>(begin + end) / 2 < on_host;
    const bool goes_on = !ranges.empty() && ranges.back().form == form && ranges.back().is_on_host == is_on_host;
    if (!goes_on || form.kind != OptimizerKind::adamw) ranges.push_back({begin, 0, form, is_on_host});
    ranges.back().end = layout::aligned_end(end);
  }
  return ranges;
}

namespace {

bool is_on_host(const StateRange& range, const OptimizerSlot& slot) { return range.is_on_host && slot.may_be_on_host; }

}  // namespace

StateBytes StateStretch::bytes() const {
  StateBytes bytes;
  const std::vector<OptimizerSlot> forms = optimizer_slots(range.form);
  for (size_t i = 0; i < slots.size(); ++i)
    (is_on_host(range, forms[i]) ? bytes.host : bytes.device) += static_cast<int64_t>(slots[i].nbytes());
  return bytes;
}

std::vector<StateStretch> new_state(const std::vector<StateRange>& ranges, const std::vector<layout::FlatSpan>& spans,
                                    at::Device device) {
  std::vector<StateStretch> stretches;
  for (const auto& [begin, end] : spans) {
    for (StateRange part : ranges) {
      part.begin = std::max(part.begin, begin), part.end = std::min(part.end, end);
      if (part.begin >= part.end) continue;
      StateStretch& stretch = stretches.emplace_back(StateStretch{part, {}});
      for (const OptimizerSlot& slot : optimizer_slots(part.form)) {
        const int64_t count = (part.end - part.begin) / slot.values;
        stretch.slots.push_back(is_on_host(part, slot)
                                    ? device::zeros_on_host(count, slot.dtype, device)
                                    : at::zeros({count}, at::TensorOptions(device).dtype(slot.dtype)));
        // What pads a block must never be its largest value.
        if (slot.dtype == at::kByte) stretch.slots.back().fill_(ops::code_of_zero(moment_kind(slot.name)));
      }
    }
  }
  return stretches;
}

StateBytes state_bytes(std::span<const StateStretch> stretches) {
  StateBytes all;
  for (const StateStretch& stretch : stretches) all.device += stretch.bytes().device, all.host += stretch.bytes().host;
  return all;
}

StateBytes state_bytes(const std::vector<layout::ParameterRow>& rows, const layout::FlatLayout& layout,
                       const OptimizerConfig& config) {
  StateBytes bytes;
  for (const StateRange& range : state_ranges(rows, layout, config)) {
    for (const OptimizerSlot& slot : optimizer_slots(range.form)) {
      (is_on_host(range, slot) ? bytes.host : bytes.device) +=
          (range.end - range.begin) / slot.values * static_cast<int64_t>(c10::elementSize(slot.dtype));
    }
  }
  return bytes;
}

namespace {

// The slots of the row that begins at `offset`, which lies in one stretch.
std::vector<at::Tensor> slots_of(const layout::ParameterRow& row, int64_t offset, const StateStretch& stretch) {
  std::vector<at::Tensor> result;
  const std::vector<OptimizerSlot> slots = optimizer_slots(stretch.range.form);
  for (size_t i = 0; i < stretch.slots.size(); ++i) {
    const OptimizerSlot& slot = slots[i];
    const std::vector<int64_t> shape = slot.shape(row);
    const int64_t begin = (offset - stretch.range.begin) / slot.values;
    result.push_back(stretch.slots[i].narrow(0, begin, c10::multiply_integers(shape)).view(shape));
  }
  return result;
}

}  // namespace

OptimizerState named_state(const std::vector<layout::ParameterRow>& rows, const layout::FlatLayout& layout,
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
    const std::vector<OptimizerSlot> slots = optimizer_slots(stretch->range.form);
    for (size_t i = 0; i < tensors.size(); ++i) state.slot(slots[i].name).emplace_back(rows[row].name, tensors[i]);
  }
  state.step_count = step_count;
  return state;
}

const parameters::NamedTensors& OptimizerState::slot(std::string_view name) const {
  static const parameters::NamedTensors none;
  const auto found = std::find_if(slots.begin(), slots.end(), [&](const auto& slot) { return slot.first == name; });
  return found == slots.end() ? none : found->second;
}

parameters::NamedTensors& OptimizerState::slot(std::string_view name) {
  const auto found = std::find_if(slots.begin(), slots.end(), [&](const auto& slot) { return slot.first == name; });
  return found == slots.end() ? slots.emplace_back(name, parameters::NamedTensors{}).second : found->second;
}

}  // namespace gpt::optim
