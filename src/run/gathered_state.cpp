#include "gpt/run/gathered_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gpt/layout/cut.h"
#include "gpt/layout/freeze.h"
#include "gpt/ops/moments.h"
#include "gpt/run/divided_state.h"

namespace gpt::run {
namespace {

// What this process has of something that lies in the order of the flat buffer, each element of which stands for so many values there.
struct OwnParts {
  std::vector<OwnValues> parts;
  at::ScalarType type;
  int64_t values = 1;
};

OwnParts parts_of_slot(const std::vector<StateStretch>& own, size_t slot, const OptimizerSlot& kind) {
  OwnParts parts{{}, kind.dtype, kind.values};
  for (const auto& [range, slots] : own) parts.parts.push_back({{range.begin, range.end}, slots[slot]});
  return parts;
}

// What this process has from `begin` to `end` of the flat buffer, and zeros, as bytes in the host's memory.
at::Tensor own_bytes(const OwnParts& own, int64_t begin, int64_t end) {
  const auto size = static_cast<int64_t>(c10::elementSize(own.type)), count = (end - begin) / own.values;
  constexpr int64_t kNumber = sizeof(int64_t);  // so that they can be added as integers
  const at::Tensor bytes = at::zeros({at::divup(count * size, kNumber) * kNumber}, at::kByte);
  const at::Tensor values = bytes.narrow(0, 0, count * size).view(own.type);
  for (const auto& [span, part] : own.parts) {
    const int64_t first = std::max(begin, span.begin), last = std::min(end, span.end);
    if (first >= last) continue;
    const int64_t length = (last - first) / own.values;
    values.narrow(0, (first - begin) / own.values, length)
        .copy_(part.narrow(0, (first - span.begin) / own.values, length));
  }
  return bytes;
}

// Of a span of the flat buffer, in the host's memory. Undefined at all processes but the first. Nothing is rounded: to each number of one
// process the others add zeros.
at::Tensor gathered(const OwnParts& own, FlatSpan span, distributed::Communicator& ranks) {
  at::Tensor whole;
  if (ranks.is_first()) whole = at::empty({(span.end - span.begin) / own.values}, own.type);
  const int64_t step = distributed::kStretchBytes / static_cast<int64_t>(sizeof(float));
  for (int64_t begin = span.begin; begin < span.end; begin += step) {
    const int64_t end = std::min(begin + step, span.end), count = (end - begin) / own.values;
    const at::Tensor bytes = own_bytes(own, begin, end);
    ranks.sum(bytes.view(at::kLong));
    if (!whole.defined()) continue;
    whole.narrow(0, (begin - span.begin) / own.values, count)
        .copy_(bytes.narrow(0, 0, count * static_cast<int64_t>(c10::elementSize(own.type))).view(own.type));
  }
  return whole;
}

// Of the part of the model that this process has.
OptimizerState undivided_state(const Optimizer& optimizer, const Parameters& parameters, const OptimizerConfig& config,
                               distributed::Communicator& ranks) {
  const std::vector<StateStretch>& own = optimizer.stretches();
  std::vector<StateStretch> whole;
  for (const StateRange& range : state_ranges(parameters.rows(), parameters.layout(), config)) {
    StateStretch stretch{range, {}};
    const std::vector<OptimizerSlot> slots = optimizer_slots(range.form);
    for (size_t i = 0; i < slots.size(); ++i)
      stretch.slots.push_back(gathered(parts_of_slot(own, i, slots[i]), {range.begin, range.end}, ranks));
    whole.push_back(std::move(stretch));
  }
  if (!ranks.is_first()) return {};
  return named_state(parameters.rows(), parameters.layout(), whole, optimizer.step_count());
}

// The whole tensor of a row that is cut, at the first process, from the part of each. As above, the others add zeros.
at::Tensor whole_tensor(const ParameterRow& row, const at::Tensor& part, distributed::Communicator& tensor) {
  constexpr int64_t kNumber = sizeof(int64_t);
  const int64_t size = row.whole_count() * static_cast<int64_t>(part.element_size());
  const at::Tensor bytes = at::zeros({at::divup(size, kNumber) * kNumber}, at::kByte),
                   whole = bytes.narrow(0, 0, size).view(part.scalar_type()).view(row.whole_shape());
  put_part(row, part.detach(), whole);
  tensor.sum(bytes.view(at::kLong));
  return tensor.is_first() ? whole : at::Tensor();
}

const at::Tensor* tensor_named(const NamedTensors& tensors, const std::string& name) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&name](const auto& tensor) { return tensor.first == name; });
  return found == tensors.end() ? nullptr : &found->second;
}

// Those of a slot, at the first process. Codes belong to the blocks of a part: their values are brought together and rounded anew.
void gather_slot(const std::string& name, const std::vector<ParameterRow>& rows, const OptimizerState& parts,
                 distributed::Communicator& tensor, OptimizerState& whole) {
  const ops::MomentKind kind = may_be_negative(name) ? ops::MomentKind::first : ops::MomentKind::second;
  const std::string name_of_maxima = name + "_max";
  for (const ParameterRow& row : rows) {
    const at::Tensor* const part = tensor_named(parts.slot(name), row.name);
    if (!part) continue;
    ops::QuantizedMoments moments{*part, {}};
    if (const at::Tensor* const maxima = tensor_named(parts.slot(name_of_maxima), row.name)) moments.maxima = *maxima;
    const bool has_codes = moments.maxima.defined();
    const auto values = [&] { return ops::dequantized({moments.codes.cpu(), moments.maxima.cpu()}, kind); };
    if (row.cut) moments = {whole_tensor(row, has_codes ? values() : *part, tensor), {}};
    if (!tensor.is_first()) continue;
    if (row.cut && has_codes) moments = ops::quantized(moments.codes, kind);
    whole.slot(name).emplace_back(row.name, moments.codes);
    if (has_codes) whole.slot(name_of_maxima).emplace_back(row.name, moments.maxima);
  }
}

OptimizerState whole_state(const OptimizerState& parts, const std::vector<ParameterRow>& rows,
                           distributed::Communicator& tensor) {
  OptimizerState whole{{}, parts.step_count};
  for (const auto& [name, tensors] : parts.slots) whole.slots.emplace_back(name, NamedTensors());
  for (const auto& [name, tensors] : parts.slots)
    if (!name.ends_with("_max")) gather_slot(name, rows, parts, tensor, whole);
  return whole;
}

// One parameter after the other, so that there is memory for the parts of one.
NamedTensors whole_model(const Parameters& parameters, const Division& division) {
  NamedTensors whole;
  for (size_t i = 0; i < parameters.rows().size(); ++i) {
    const ParameterRow& row = parameters.rows()[i];
    const at::Tensor part =
        division.divides_weights ? undivided_value(parameters, i, *division.ranks) : parameters[i].value().detach();
    if (division.ranks->is_first())
      whole.emplace_back(row.name, row.cut ? whole_tensor(row, part, *division.tensor) : part);
  }
  return whole;
}

}  // namespace

at::Tensor undivided_value(const Parameters& parameters, size_t row, distributed::Communicator& ranks) {
  const DividedValues& values = *parameters.divided_values();
  const int64_t begin = parameters.layout().offsets[row];
  const at::Tensor flat = gathered({values.own(), parameters[row].value().scalar_type()},
                                   {begin, begin + parameters.rows()[row].count()}, ranks);
  return flat.defined() ? flat.view(parameters.rows()[row].shape) : at::Tensor();
}

GatheredState gathered_state(const Optimizer& optimizer, const Parameters& parameters, const OptimizerConfig& config,
                             const Division& division) {
  const GatheredState nothing{{}, {{}, optimizer.step_count()}};
  GatheredState state;
  state.optimizer =
      division.divides_state ? undivided_state(optimizer, parameters, config, *division.ranks) : optimizer.state();
  const at::NoGradGuard no_gradients;
  if (division.ranks->is_first())  // others have the same parts
    state.optimizer = whole_state(state.optimizer, parameters.rows(), *division.tensor);
  state.model = whole_model(parameters, division);
  return division.ranks->is_first() && division.tensor->is_first() ? std::move(state) : nothing;
}

void capture_gathered(const GatheredState& own, const Parameters& parameters, const Config& config,
                      const Division& division, Checkpoint& checkpoint) {
  if (!division.has_stages()) {
    checkpoint.model = own.model, checkpoint.optimizer = own.optimizer;
    return;
  }
  checkpoint.optimizer = {{}, own.optimizer.step_count};
  ModelPart part{.stages = division.part().stages};
  for (; part.stage < part.stages; ++part.stage) {
    const int64_t writer = part.stage * division.tensor->size() * division.ranks->size();
    const auto add = [&](const std::string& group, const std::string& name, const std::vector<int64_t>& shape,
                         at::ScalarType type, const NamedTensors& all, NamedTensors& tensors) {
      const at::Tensor* const values = writer == division.all->rank() ? tensor_named(all, name) : nullptr;
      tensors.emplace_back(name, at::empty(shape, at::TensorOptions(at::kMeta).dtype(type)));
      checkpoint.parts[group + "/" + name] = {
          {0, tensors.back().second.numel(), writer, values ? values->flatten() : at::Tensor()}};
    };
    for (const ParameterRow& row : cut(parameter_table(config.model, config.training.freeze), config.model, part)) {
      if (part.stage > 0 && row.layer < 0) continue;  // the table of a tied head is the first stage's
      add("model", row.name, row.shape, kept_type(row, parameters), own.model, checkpoint.model);
      if (!row.is_trained) continue;
      for (const OptimizerSlot& slot : optimizer_slots(state_form(row, config.training.optimizer))) {
        const std::string name(slot.name);
        add(name, row.name, slot.shape(row), slot.dtype, own.optimizer.slot(name), checkpoint.optimizer.slot(name));
      }
    }
  }
}

}  // namespace gpt::run
