#include "gpt/run/divided_state.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace gpt::run {
namespace {

struct OwnedSpan : FlatSpan {
  int64_t rank;
};

// Of all processes, in the order of the buffer.
std::vector<OwnedSpan> all_spans(const Parameters& parameters, const Division& division) {
  std::vector<OwnedSpan> all;
  for (int64_t rank = 0; rank < division.ranks->size(); ++rank)
    for (const FlatSpan& span : division.spans(parameters.rows(), parameters.layout(), rank))
      all.push_back({span, rank});
  std::sort(all.begin(), all.end(), [](const OwnedSpan& a, const OwnedSpan& b) { return a.begin < b.begin; });
  return all;
}

// A slot of a parameter.
struct SlotOfRow {
  int64_t begin, end;  // of the parameter, in the flat buffer
  size_t number;       // of the slot
  int64_t values;      // that an element stands for
};

// The elements that stand for what of the parameter is in the span: `own` has them where that is this process's.
TensorPart part_in(const OwnedSpan& span, const SlotOfRow& slot, const std::vector<StateStretch>& own, bool is_own) {
  const int64_t first = std::max(slot.begin, span.begin), last = std::min(slot.end, span.end);
  TensorPart part{(first - slot.begin) / slot.values, at::divup(last - slot.begin, slot.values), span.rank};
  if (!is_own) return part;
  const auto stretch = std::partition_point(own.begin(), own.end(), [first](const StateStretch& candidate) {
    return candidate.range.end <= first;
  });
  TORCH_CHECK(stretch != own.end() && stretch->range.begin <= first, "no state at ", first);
  part.values =
      stretch->slots[slot.number].narrow(0, (first - stretch->range.begin) / slot.values, part.end - part.begin);
  return part;
}

}  // namespace

ValueRanges own_values(const Division& division, const std::vector<ParameterRow>& rows, const FlatLayout& layout) {
  const std::vector<FlatSpan> spans = division.spans(rows, layout);
  ValueRanges ranges;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t begin = layout.offsets[i], end = begin + rows[i].count();
    auto span =
        std::partition_point(spans.begin(), spans.end(), [begin](const FlatSpan& each) { return each.end <= begin; });
    for (; span != spans.end() && span->begin < end; ++span)
      ranges[rows[i].name].push_back({std::max(begin, span->begin) - begin, std::min(end, span->end) - begin});
  }
  return ranges;
}

// The first process looks for a checkpoint that is whole.
StateNeeds needed_state(const std::shared_ptr<distributed::Communicator>& ranks, const DistributedConfig& config) {
  if (config.zero == 0 || ranks->size() == 1 || config.tensor_parallel > 1) return {};
  return {.ranges =
              [ranks, config](const Config& saved) {
                const std::vector<ParameterRow> rows = parameter_table(saved.model, saved.training.freeze);
                return own_values(Division(ranks, config, saved.training.optimizer), rows, flat_layout(rows));
              },
          .verifies_all = ranks->is_first()};
}

namespace {

// Calls work(span) for the spans that have something of a parameter, which is [begin, end) in the flat buffer.
template <class Work>
void for_spans_in(const std::vector<OwnedSpan>& spans, int64_t begin, int64_t end, const Work& work) {
  auto span =
      std::partition_point(spans.begin(), spans.end(), [begin](const OwnedSpan& each) { return each.end <= begin; });
  for (; span != spans.end() && span->begin < end; ++span) work(*span);
}

// Weights that are divided too.
void capture_values(const Parameters& parameters, int64_t own_rank, const std::vector<OwnedSpan>& spans,
                    Checkpoint& checkpoint) {
  checkpoint.model.clear();
  for (size_t i = 0; i < parameters.rows().size(); ++i) {
    const ParameterRow& row = parameters.rows()[i];
    const int64_t begin = parameters.layout().offsets[i], end = begin + row.count();
    const auto type = at::TensorOptions(at::kMeta).dtype(parameters[i].value().scalar_type());
    checkpoint.model.emplace_back(row.name, at::empty(row.shape, type));
    std::vector<TensorPart>& parts = checkpoint.parts["model/" + row.name];
    for_spans_in(spans, begin, end, [&](const OwnedSpan& span) {
      const FlatSpan common{std::max(begin, span.begin), std::min(end, span.end)};
      parts.push_back({common.begin - begin, common.end - begin, span.rank});
      if (span.rank == own_rank) parts.back().values = parameters.values_of(common);
    });
  }
}

}  // namespace

void capture_parts(const Optimizer& optimizer, const Parameters& parameters, const OptimizerConfig& config,
                   const Division& division, Checkpoint& checkpoint) {
  const std::vector<StateStretch>& own = optimizer.stretches();
  const std::vector<OwnedSpan> spans = all_spans(parameters, division);
  if (division.divides_weights) capture_values(parameters, division.ranks->rank(), spans, checkpoint);
  checkpoint.optimizer = {};
  checkpoint.optimizer.step_count = optimizer.step_count();
  for (size_t i = 0; i < parameters.rows().size(); ++i) {
    const ParameterRow& row = parameters.rows()[i];
    if (!row.is_trained) continue;
    const int64_t begin = parameters.layout().offsets[i], end = begin + row.count();
    const std::vector<OptimizerSlot> slots = optimizer_slots(state_form(row, config));
    for (size_t number = 0; number < slots.size(); ++number) {
      const OptimizerSlot& slot = slots[number];
      checkpoint.optimizer.slot(slot.name).emplace_back(row.name,
                                                        at::empty(slot.shape(row),
                                                                  at::TensorOptions(at::kMeta).dtype(slot.dtype)));
      std::vector<TensorPart>& parts = checkpoint.parts[fmt::format("{}/{}", slot.name, row.name)];
      for_spans_in(spans, begin, end, [&](const OwnedSpan& span) {
        parts.push_back(part_in(span, {begin, end, number, slot.values}, own, span.rank == division.ranks->rank()));
      });
    }
  }
}

}  // namespace gpt::run
