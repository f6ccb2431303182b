#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "gpt/core/log.h"
#include "gpt/ops/moments.h"
#include "gpt/optim/optimizer_state.h"

namespace gpt::optim {
namespace {

// The trained parameters that have a slot, with the shapes of its tensors.
struct RowsOfSlot {
  std::vector<layout::ParameterRow> rows;
  std::vector<size_t> places;         // among all
  std::vector<at::ScalarType> types;  // that are kept
};

RowsOfSlot rows_of_slot(std::string_view name, const std::vector<layout::ParameterRow>& rows,
                        const OptimizerConfig& config) {
  RowsOfSlot result;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (!rows[row].is_trained) continue;
    const std::vector<OptimizerSlot> slots = optimizer_slots(state_form(rows[row], config));
    const std::optional<size_t> place = place_of_slot(name, slots);
    if (!place) continue;
    layout::ParameterRow whole = rows[row];
    whole.shape = rows[row].whole_shape(), whole.cut.reset();
    whole.shape = slots[*place].shape(whole);
    result.rows.push_back(std::move(whole));
    result.places.push_back(row);
    result.types.push_back(slots[*place].dtype);
  }
  return result;
}

// The rows whose tensor is one of codes, with the shape of its maxima.
std::vector<layout::ParameterRow> rows_with_maxima(const std::vector<layout::ParameterRow>& rows,
                                                   const std::vector<at::Tensor>& from) {
  std::vector<layout::ParameterRow> result;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (from[i].scalar_type() != at::kByte) continue;
    result.push_back(rows[i]);
    result.back().shape = OptimizerSlot{"", at::kFloat, layout::kParameterAlignment}.shape(rows[i]);
  }
  return result;
}

// What of the parameter's slot, which begins at `begin` of the flat buffer, is in the stretches.
void load_row(std::string_view name, int64_t begin, int64_t end, const ops::QuantizedMoments& from,
              std::span<const StateStretch> stretches) {
  for (const auto& [range, tensors] : stretches) {
    const int64_t first = std::max(begin, range.begin), last = std::min(end, range.end);
    if (first >= last) continue;
    const std::vector<OptimizerSlot> slots = optimizer_slots(range.form);
    const auto copy = [&](const at::Tensor& of_row, std::string_view slot) {
      const size_t place = place_of_slot(slot, slots).value();
      const int64_t values = slots[place].values, count = at::divup(last - first, values);
      tensors[place]
          .narrow(0, (first - range.begin) / values, count)
          .copy_(of_row.flatten().narrow(0, (first - begin) / values, count));
    };
    copy(from.codes, name);
    if (from.maxima.defined()) copy(from.maxima, fmt::format("{}_max", name));
  }
}

}  // namespace

bool load_slot(std::string_view name, const OptimizerState& from, const std::vector<layout::ParameterRow>& rows,
               const layout::FlatLayout& layout, const OptimizerConfig& config,
               std::span<const StateStretch> stretches) {
  bool is_converted = false;
  const ops::MomentKind kind = moment_kind(name);
  const std::string name_of_maxima = fmt::format("{}_max", name);
  const RowsOfSlot wanted = rows_of_slot(name, rows, config);
  const std::vector<at::Tensor> tensors = parameters::tensors_of_rows(wanted.rows, from.slot(name), name),
                                maxima = parameters::tensors_of_rows(rows_with_maxima(wanted.rows, tensors),
                                                                     from.slot(name_of_maxima), name_of_maxima);
  auto next_maxima = maxima.begin();
  for (size_t i = 0; i < wanted.rows.size(); ++i) {
    ops::QuantizedMoments codes{tensors[i], {}};
    if (tensors[i].scalar_type() == at::kByte) codes.maxima = *next_maxima++;
    const layout::ParameterRow& row = rows[wanted.places[i]];
    const bool is_of_another_type = tensors[i].scalar_type() != wanted.types[i];
    is_converted = is_converted || is_of_another_type;
    if (is_of_another_type || (row.cut && codes.maxima.defined())) {
      const at::Tensor values = codes.maxima.defined() ? ops::dequantized(codes, kind) : tensors[i];
      codes = {parameters::part_of(row, values), {}};
      if (wanted.types[i] == at::kByte) codes = ops::quantized(codes.codes, kind);
    } else {
      codes.codes = parameters::part_of(row, codes.codes);
    }
    const int64_t begin = layout.offsets[wanted.places[i]];
    load_row(name, begin, begin + row.count(), codes, stretches);
  }
  return is_converted;
}

bool load_state(const OptimizerState& from, const std::vector<layout::ParameterRow>& rows,
                const layout::FlatLayout& layout, const OptimizerConfig& config,
                std::span<const StateStretch> stretches) {
  bool is_converted = false;
  for (const std::string_view name : kOptimizerSlots) {
    if (name.ends_with("_max")) continue;  // comes with its codes
    if (name == kAverageSlot && !config.has_averages()) continue;
    is_converted = load_slot(name, from, rows, layout, config, stretches) || is_converted;
  }
  if (!config.has_averages() && !from.slot(kAverageSlot).empty())
    log::info("The averages of the weights in the checkpoint are dropped, because training.ema_decay is 0");
  return is_converted;
}

}  // namespace gpt::optim
