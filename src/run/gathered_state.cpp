#include "gpt/run/gathered_state.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace gpt::run {
namespace {

// Of slot number `slot`, from `begin` to `end` of the flat buffer: what this process has of it, and zeros, as bytes in the host's memory.
at::Tensor own_bytes(const std::vector<StateStretch>& own, size_t slot, const OptimizerSlot& kind, int64_t begin,
                     int64_t end) {
  const auto size = static_cast<int64_t>(c10::elementSize(kind.dtype)), count = (end - begin) / kind.values;
  constexpr int64_t kNumber = sizeof(int64_t);  // so that they can be added as integers
  const at::Tensor bytes = at::zeros({at::divup(count * size, kNumber) * kNumber}, at::kByte);
  const at::Tensor values = bytes.narrow(0, 0, count * size).view(kind.dtype);
  for (const auto& [range, slots] : own) {
    const int64_t first = std::max(begin, range.begin), last = std::min(end, range.end);
    if (first >= last) continue;
    const int64_t length = (last - first) / kind.values;
    values.narrow(0, (first - begin) / kind.values, length)
        .copy_(slots[slot].narrow(0, (first - range.begin) / kind.values, length));
  }
  return bytes;
}

// Undefined at all processes but the first. Nothing is rounded: to each number of one process the others add zeros.
at::Tensor gathered_slot(const std::vector<StateStretch>& own, size_t slot, const OptimizerSlot& kind,
                         const StateRange& range, distributed::Communicator& ranks) {
  at::Tensor whole;
  if (ranks.is_first()) whole = at::empty({(range.end - range.begin) / kind.values}, kind.dtype);
  const int64_t step = distributed::kStretchBytes / static_cast<int64_t>(sizeof(float));
  for (int64_t begin = range.begin; begin < range.end; begin += step) {
    const int64_t end = std::min(begin + step, range.end), count = (end - begin) / kind.values;
    const at::Tensor bytes = own_bytes(own, slot, kind, begin, end);
    ranks.sum(bytes.view(at::kLong));
    if (!whole.defined()) continue;
    whole.narrow(0, (begin - range.begin) / kind.values, count)
        .copy_(bytes.narrow(0, 0, count * static_cast<int64_t>(c10::elementSize(kind.dtype))).view(kind.dtype));
  }
  return whole;
}

}  // namespace

OptimizerState gathered_state(const Optimizer& optimizer, const Parameters& parameters, const OptimizerConfig& config,
                              distributed::Communicator& ranks) {
  const std::vector<StateStretch>& own = optimizer.stretches();
  std::vector<StateStretch> whole;
  for (const StateRange& range : state_ranges(parameters.rows(), parameters.layout(), config)) {
    StateStretch stretch{range, {}};
    const std::vector<OptimizerSlot> slots = optimizer_slots(range.form);
    for (size_t i = 0; i < slots.size(); ++i) stretch.slots.push_back(gathered_slot(own, i, slots[i], range, ranks));
    whole.push_back(std::move(stretch));
  }
  if (!ranks.is_first()) return {};
  return named_state(parameters.rows(), parameters.layout(), whole, optimizer.step_count());
}

NamedTensors gathered_values(const Parameters& parameters, distributed::Communicator& ranks) {
  if (!parameters.divided_values()) return parameters.values();
  std::vector<StateStretch> own;
  for (const auto& [span, values] : parameters.divided_values()->own())
    own.push_back(
        {.range = {.begin = span.begin, .end = span.end, .form = {}, .is_on_host = false}, .slots = {values}});
  const StateRange all{.begin = 0, .end = parameters.layout().size, .form = {}, .is_on_host = false};
  const at::Tensor flat = gathered_slot(own, 0, {"model", parameters[0].value().scalar_type()}, all, ranks);
  NamedTensors values;
  if (!ranks.is_first()) return values;
  for (size_t i = 0; i < parameters.rows().size(); ++i) {
    const ParameterRow& row = parameters.rows()[i];
    values.emplace_back(row.name, flat.narrow(0, parameters.layout().offsets[i], row.count()).view(row.shape));
  }
  return values;
}

}  // namespace gpt::run
