#include "gpt/parallel/rounded_moments.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "gpt/ops/moments.h"
#include "gpt/parameters/named_tensors.h"

namespace gpt::parallel {
namespace {

using ops::MomentKind;

// The place of a parameter in the flat buffer, the slot of its codes and that of their blocks' largest magnitudes.
struct CodesOfRow {
  int64_t begin, end;
  size_t codes, maxima;
};

// Puts the values that this process has of the parameter in their places in the whole of it.
void put_values(const std::vector<optim::StateStretch>& own, const CodesOfRow& of_row, const layout::RowCut& cut,
                MomentKind kind, const at::Tensor& whole) {
  for (const auto& [range, slots] : own) {
    const int64_t first = std::max(of_row.begin, range.begin), last = std::min(of_row.end, range.end);
    if (first >= last) continue;
    const auto part_of = [&, first = first - range.begin, count = last - first](size_t slot, int64_t values) {
      return slots[slot].narrow(0, first / values, at::divup(count, values)).cpu();
    };
    const at::Tensor values =
        ops::dequantized({part_of(of_row.codes, 1), part_of(of_row.maxima, layout::kParameterAlignment)}, kind);
    parameters::put_in_whole(&cut, {first - of_row.begin, last - of_row.begin}, values, whole);
  }
}

// Nothing is rounded: to each number of one process the others add zeros.
void sum_bits(const at::Tensor& values, distributed::Communicator& ranks) { ranks.sum(values.view(at::kLong)); }

}  // namespace

bool is_rounded_anew(const layout::ParameterRow& row, const OptimizerConfig& config) {
  return row.cut && row.is_trained && optim::state_form(row, config).dtype == StateDtype::int8;
}

layout::FlatSpan rounded_by(int64_t process, int64_t processes, const RoundedSize& size) {
  const int64_t blocks = at::divup(size.count, layout::kParameterAlignment),
                elements = at::divup(size.count, size.values);
  const auto border = [&](int64_t before) {
    return std::min(blocks * before / processes * layout::kParameterAlignment / size.values, elements);
  };
  return {border(process), border(process + 1)};
}

RoundedMoments rounded_moments(const optim::Optimizer& optimizer, const parameters::Parameters& parameters,
                               const Division& division) {
  const at::NoGradGuard no_gradients;
  RoundedMoments rounded;
  for (size_t i = 0; i < parameters.rows().size(); ++i) {
    const layout::ParameterRow& row = parameters.rows()[i];
    const bool is_of_first_stage = row.layer < 0 && division.part().stage > 0;  // a tied table, which that one writes
    if (is_of_first_stage || !is_rounded_anew(row, division.optimizer)) continue;
    const int64_t begin = parameters.layout().offsets[i], count = row.whole_count();
    const layout::FlatSpan own = rounded_by(division.place_in_stage(division.ranks->rank(), division.tensor->rank()),
                                            division.processes_of_stage(), {count, 1});
    const std::vector<optim::OptimizerSlot> slots = optim::optimizer_slots(optim::state_form(row, division.optimizer));
    for (size_t slot = 0; slot < slots.size(); ++slot) {
      if (slots[slot].dtype != at::kByte) continue;
      const std::string name(slots[slot].name), name_of_maxima = name + "_max";
      const MomentKind kind = optim::moment_kind(name);
      const at::Tensor whole =
          at::zeros({at::divup(count, 2) * 2});  // so that they can be added as integers of 8 bytes
      put_values(optimizer.stretches(),
                 {begin, begin + row.count(), slot, optim::place_of_slot(name_of_maxima, slots).value()}, *row.cut,
                 kind, whole);
      if (division.divides_state()) sum_bits(whole, *division.ranks);
      sum_bits(whole, *division.tensor);
      if (own.begin == own.end) continue;
      const auto [codes, maxima] = ops::quantized(whole.slice(0, own.begin, own.end), kind);
      rounded[fmt::format("{}/{}", name, row.name)] = codes;
      rounded[fmt::format("{}/{}", name_of_maxima, row.name)] = maxima;
    }
  }
  return rounded;
}

}  // namespace gpt::parallel
