#include "gpt/run/divided_state.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "gpt/layout/cut.h"
#include "gpt/layout/freeze.h"

namespace gpt::run {
namespace {

struct OwnedSpan : FlatSpan {
  int64_t rank;  // among all processes of the run
};

// What the processes have of one stage of the model, which is all of it where there are no others.
struct StageState {
  std::vector<ParameterRow> rows;
  FlatLayout layout;
  std::vector<OwnedSpan> spans;  // in the order of the buffer
};

// Of stages each process writes an equal part, also where all that have it remember all of its state.
StageState state_of_stage(const Division& division, std::vector<ParameterRow> rows, int64_t stage) {
  Division writing = division;
  writing.divides_state = true;
  StageState state{std::move(rows), {}, {}};
  state.layout = flat_layout(state.rows);
  for (int64_t rank = 0; rank < division.ranks->size(); ++rank)
    for (const FlatSpan& span : writing.spans(state.rows, state.layout, rank))
      state.spans.push_back({span, stage * division.ranks->size() + rank});
  std::sort(state.spans.begin(), state.spans.end(),
            [](const OwnedSpan& a, const OwnedSpan& b) { return a.begin < b.begin; });
  for (int64_t rank = 0; rank < division.ranks->size(); ++rank) {  // what is not trained lies behind all that is
    const int64_t trained = state.layout.trained_size;
    const auto [begin, end] = distributed::part_of(state.layout.size - trained, rank, division.ranks->size());
    if (begin < end) state.spans.push_back({{trained + begin, trained + end}, stage * division.ranks->size() + rank});
  }
  return state;
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

// What of the whole tensor these values of the row are.
void add_to_ranges(const ParameterRow& row, const FlatSpan& of_row, std::vector<FlatSpan>& ranges) {
  if (!row.cut) return ranges.push_back(of_row);
  const auto& [whole_shape, dim, pieces] = *row.cut;
  int64_t inner = 1;  // values behind an index of the dimension that is cut
  for (size_t i = dim + 1; i < row.shape.size(); ++i) inner *= row.shape[i];
  const int64_t of_part = row.shape[dim] * inner, of_whole = whole_shape[dim] * inner;
  for (int64_t outer = of_row.begin / of_part; outer * of_part < of_row.end; ++outer) {
    int64_t from = outer * of_part;
    for (const auto& [begin, length] : pieces) {
      const int64_t first = std::max(of_row.begin, from), last = std::min(of_row.end, from + length * inner),
                    shift = outer * of_whole + begin * inner - from;
      if (first < last) ranges.push_back({first + shift, last + shift});
      from += length * inner;
    }
  }
}

ValueRanges values_in(const std::vector<FlatSpan>& spans, const std::vector<ParameterRow>& rows,
                      const FlatLayout& layout) {
  ValueRanges ranges;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t begin = layout.offsets[i], end = begin + rows[i].count();
    auto span =
        std::partition_point(spans.begin(), spans.end(), [begin](const FlatSpan& each) { return each.end <= begin; });
    for (; span != spans.end() && span->begin < end; ++span)
      add_to_ranges(rows[i], {std::max(begin, span->begin) - begin, std::min(end, span->end) - begin},
                    ranges[rows[i].name]);
  }
  return ranges;
}

}  // namespace

at::ScalarType kept_type(const ParameterRow& row, const Parameters& parameters) {
  const bool is_copy = !row.is_trained && parameters.flat_rounded().defined();
  if (parameters.divided_values()) return parameters[0].value().scalar_type();
  return (is_copy ? parameters.flat_rounded() : parameters.flat_values()).scalar_type();
}

ValueRanges values_of_own_state(const Division& division, const std::vector<ParameterRow>& rows,
                                const FlatLayout& layout) {
  return values_in(division.spans(rows, layout), rows, layout);
}

ValueRanges own_values(const Division& division, const std::vector<ParameterRow>& rows, const FlatLayout& layout) {
  return values_in(division.divides_weights ? division.spans(rows, layout) : std::vector<FlatSpan>{{0, layout.size}},
                   rows, layout);
}

// The first process looks for a checkpoint that is whole.
StateNeeds needed_state(const distributed::Mesh& mesh, const DistributedConfig& config) {
  const Division asked(mesh, config);
  if (!asked.divides_reads()) return {};
  const auto of_process = [mesh, config](auto values) {
    return [mesh, config, values](const Config& saved) {
      const Division division(mesh, config, saved.training.optimizer);
      const std::vector<ParameterRow> rows =
          cut(parameter_table(saved.model, saved.training.freeze), saved.model, division.part());
      return values(division, rows, flat_layout(rows));
    };
  };
  StateNeeds needs{.ranges = of_process(values_of_own_state), .verifies_all = mesh.all->is_first()};
  if (asked.divides_weights || mesh.divides_model()) needs.weights = of_process(own_values);
  return needs;
}

namespace {

// The parts of one stage's parameters, of which this process may have some.
class StageParts {
 public:
  // The parameters of this process's stage, and what it remembers of them.
  struct Own {
    const Parameters& parameters;
    const std::vector<StateStretch>& state;
    int64_t rank;
  };
  StageParts(const StageState& stage, const Own& own) : stage_(stage), own_(own) {}

  void add_values(size_t row, Checkpoint& checkpoint) const {
    const ParameterRow& of_row = stage_.rows[row];
    const std::string& name = of_row.name;
    const auto type = kept_type(of_row, own_.parameters);
    checkpoint.model.emplace_back(name, at::empty(of_row.shape, at::TensorOptions(at::kMeta).dtype(type)));
    std::vector<TensorPart>& parts = checkpoint.parts["model/" + name];
    for_spans_of(row, [&](const OwnedSpan& span, int64_t begin, int64_t end) {
      const FlatSpan common{std::max(begin, span.begin), std::min(end, span.end)};
      TensorPart& part = parts.emplace_back(TensorPart{common.begin - begin, common.end - begin, span.rank});
      if (!is_own(span)) return;
      part.values = of_row.is_trained ? own_.parameters.values_of(common)
                                      : own_.parameters[row].value().detach().flatten().slice(0, part.begin, part.end);
    });
  }

  void add_state(size_t row, const OptimizerConfig& config, Checkpoint& checkpoint) const {
    const ParameterRow& of_row = stage_.rows[row];
    const std::vector<OptimizerSlot> slots = optimizer_slots(state_form(of_row, config));
    for (size_t number = 0; number < slots.size(); ++number) {
      const OptimizerSlot& slot = slots[number];
      checkpoint.optimizer.slot(slot.name).emplace_back(of_row.name,
                                                        at::empty(slot.shape(of_row),
                                                                  at::TensorOptions(at::kMeta).dtype(slot.dtype)));
      std::vector<TensorPart>& parts = checkpoint.parts[fmt::format("{}/{}", slot.name, of_row.name)];
      for_spans_of(row, [&](const OwnedSpan& span, int64_t begin, int64_t end) {
        parts.push_back(part_in(span, {begin, end, number, slot.values}, own_.state, is_own(span)));
      });
    }
  }

 private:
  bool is_own(const OwnedSpan& span) const { return span.rank == own_.rank; }

  // Calls work(span, begin, end) for the spans that have something of a parameter, which is [begin, end) in the flat buffer.
  template <class Work>
  void for_spans_of(size_t row, const Work& work) const {
    const int64_t begin = stage_.layout.offsets[row], end = begin + stage_.rows[row].count();
    auto span = std::partition_point(stage_.spans.begin(), stage_.spans.end(),
                                     [begin](const OwnedSpan& each) { return each.end <= begin; });
    for (; span != stage_.spans.end() && span->begin < end; ++span) work(*span, begin, end);
  }

  const StageState& stage_;
  const Own& own_;
};

}  // namespace

void capture_parts(const Optimizer& optimizer, const Parameters& parameters, const Config& config,
                   const Division& division, Checkpoint& checkpoint) {
  const bool has_values = division.divides_weights || division.has_stages();
  if (has_values) checkpoint.model.clear();
  checkpoint.optimizer = {};
  checkpoint.optimizer.step_count = optimizer.step_count();
  const StageParts::Own own{parameters, optimizer.stretches(), division.all->rank()};
  ModelPart part = division.part();
  for (int64_t stage = 0; stage < part.stages; ++stage) {
    part.stage = stage;
    const StageState state =
        state_of_stage(division, cut(parameter_table(config.model, config.training.freeze), config.model, part), stage);
    const StageParts parts(state, own);
    for (size_t row = 0; row < state.rows.size(); ++row) {
      if (stage > 0 && state.rows[row].layer < 0) continue;  // the table of a tied head is the first stage's
      if (has_values) parts.add_values(row, checkpoint);
      if (state.rows[row].is_trained) parts.add_state(row, config.training.optimizer, checkpoint);
    }
  }
}

}  // namespace gpt::run
