#include "gpt/parallel/divided_state.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "gpt/layout/cut.h"
#include "gpt/layout/tuning.h"

namespace gpt::parallel {
namespace {

// What the processes have of the parameters of one stage of the model, which is all of it where there are no others; with tensor parallelism
// of one part of them.
struct PartState {
  std::vector<layout::ParameterRow> rows;
  layout::FlatLayout layout;
  std::vector<OwnedSpan> spans;  // in the order of the buffer; owners are ranks among all processes of the run
};

// The rank, among all processes, of one of those that have the same part.
int64_t rank_of(const Division& division, const layout::ModelPart& part, int64_t rank) {
  return part.stage * division.processes_of_stage() + division.place_in_stage(rank, part.rank);
}

// Each process writes an equal part, also where all that have it remember all of its state.
PartState state_of_part(const Division& division, std::vector<layout::ParameterRow> rows,
                        const layout::ModelPart& part) {
  Division writing = division;
  writing.zero = std::max<int64_t>(1, writing.zero);
  PartState state{std::move(rows), {}, {}};
  state.layout = layout::flat_layout(state.rows);
  for (int64_t rank = 0; rank < division.ranks->size(); ++rank)
    for (const layout::FlatSpan& span : writing.spans(state.rows, state.layout, rank))
      state.spans.push_back({span, rank_of(division, part, rank)});
  std::sort(state.spans.begin(), state.spans.end(),
            [](const OwnedSpan& a, const OwnedSpan& b) { return a.begin < b.begin; });
  for (int64_t rank = 0; rank < division.ranks->size(); ++rank) {  // what is not trained lies behind all that is
    const int64_t trained = state.layout.trained_size;
    const auto [begin, end] = distributed::part_of(state.layout.size - trained, rank, division.ranks->size());
    if (begin < end) state.spans.push_back({{trained + begin, trained + end}, rank_of(division, part, rank)});
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
checkpoint::TensorPart part_in(const OwnedSpan& span, const SlotOfRow& slot,
                               const std::vector<optim::StateStretch>& own, bool is_own) {
  const int64_t first = std::max(slot.begin, span.begin), last = std::min(slot.end, span.end);
  checkpoint::TensorPart part{(first - slot.begin) / slot.values, at::divup(last - slot.begin, slot.values),
                              span.owner};
  if (!is_own) return part;
  const auto stretch = std::partition_point(own.begin(), own.end(), [first](const optim::StateStretch& candidate) {
    return candidate.range.end <= first;
  });
  TORCH_CHECK(stretch != own.end() && stretch->range.begin <= first, "no state at ", first);
  part.values =
      stretch->slots[slot.number].narrow(0, (first - stretch->range.begin) / slot.values, part.end - part.begin);
  return part;
}

checkpoint::ValueRanges values_in(const std::vector<layout::FlatSpan>& spans,
                                  const std::vector<layout::ParameterRow>& rows, const layout::FlatLayout& layout) {
  checkpoint::ValueRanges ranges;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t begin = layout.offsets[i], end = begin + rows[i].count();
    auto span = std::partition_point(spans.begin(), spans.end(),
                                     [begin](const layout::FlatSpan& each) { return each.end <= begin; });
    for (; span != spans.end() && span->begin < end; ++span) {
      const layout::FlatSpan of_row{std::max(begin, span->begin) - begin, std::min(end, span->end) - begin};
      const std::vector<layout::FlatSpan> in_whole =
          layout::stretches_in_whole(rows[i].cut ? &*rows[i].cut : nullptr, of_row);
      std::vector<layout::FlatSpan>& of_name = ranges[rows[i].name];
      of_name.insert(of_name.end(), in_whole.begin(), in_whole.end());
    }
  }
  return ranges;
}

}  // namespace

at::ScalarType kept_type(const layout::ParameterRow& row, const parameters::Parameters& parameters) {
  const bool is_copy = !row.is_trained && parameters.flat_rounded().defined();
  if (parameters.divided_values()) return parameters[0].value().scalar_type();
  return (is_copy ? parameters.flat_rounded() : parameters.flat_values()).scalar_type();
}

checkpoint::ValueRanges values_of_own_state(const Division& division, const std::vector<layout::ParameterRow>& rows,
                                            const layout::FlatLayout& layout) {
  return values_in(division.spans(rows, layout), rows, layout);
}

checkpoint::ValueRanges own_values(const Division& division, const std::vector<layout::ParameterRow>& rows,
                                   const layout::FlatLayout& layout) {
  return values_in(division.divides_weights() ? division.spans(rows, layout)
                                              : std::vector<layout::FlatSpan>{{0, layout.size}},
                   rows, layout);
}

// The first process looks for a checkpoint that is whole.
checkpoint::StateNeeds needed_state(const distributed::Mesh& mesh, const DistributedConfig& config) {
  const Division asked(mesh, config);
  if (!asked.divides_checkpoints()) return {};
  const auto of_process = [mesh, config](auto values) {
    return [mesh, config, values](const UpdateConfig& saved) {
      const Division division(mesh, config, saved.training.optimizer);
      const std::vector<layout::ParameterRow> rows =
          layout::cut(layout::parameter_table(saved.model, saved.training.tuning), saved.model, division.part());
      return values(division, rows, layout::flat_layout(rows));
    };
  };
  checkpoint::StateNeeds needs{.ranges = of_process(values_of_own_state), .verifies_all = mesh.all->is_first()};
  if (asked.divides_weights() || mesh.divides_model()) needs.weights = of_process(own_values);
  return needs;
}

namespace {

// What a checkpoint says of the parameters of one stage, of which this process may have some.
class StageParts {
 public:
  // What this process has of its own stage.
  struct Own {
    const parameters::Parameters& parameters;
    const std::vector<optim::StateStretch>& state;
    const RoundedMoments& rounded;
    int64_t rank;
  };

  StageParts(const ModelConfig& model, const std::vector<layout::ParameterRow>& of_model, const Division& division,
             int64_t stage, const Own& own)
      : division_(division), own_(own), stage_(stage) {
    layout::ModelPart part = division.part();
    part.stage = stage;
    whole_ = layout::cut(of_model, model, {.stage = stage, .stages = part.stages});
    for (part.rank = 0; part.rank < part.size; ++part.rank)
      parts_.push_back(state_of_part(division, layout::cut(of_model, model, part), part));
  }

  const std::vector<layout::ParameterRow>& rows() const { return whole_; }

  void add_values(size_t row, checkpoint::Checkpoint& checkpoint) const {
    const std::string& name = whole_[row].name;
    const auto type = kept_type(whole_[row], own_.parameters);
    checkpoint.model.emplace_back(name, at::empty(whole_[row].shape, at::TensorOptions(at::kMeta).dtype(type)));
    for_spans_of(row, checkpoint.parts["model/" + name], [&](const OwnedSpan& span, int64_t begin, int64_t end) {
      const layout::FlatSpan common{std::max(begin, span.begin), std::min(end, span.end)};
      checkpoint::TensorPart part{common.begin - begin, common.end - begin, span.owner};
      if (is_own(span))
        part.values = whole_[row].is_trained
                          ? own_.parameters.values_of(common)
                          : own_.parameters[row].value().detach().flatten().slice(0, part.begin, part.end);
      return part;
    });
  }

  void add_state(size_t row, checkpoint::Checkpoint& checkpoint) const {
    const std::vector<optim::OptimizerSlot> slots =
        optim::optimizer_slots(optim::state_form(whole_[row], division_.optimizer));
    for (size_t number = 0; number < slots.size(); ++number) {
      const optim::OptimizerSlot& slot = slots[number];
      checkpoint.optimizer.slot(slot.name).emplace_back(whole_[row].name,
                                                        at::empty(slot.shape(whole_[row]),
                                                                  at::TensorOptions(at::kMeta).dtype(slot.dtype)));
      const std::string record = fmt::format("{}/{}", slot.name, whole_[row].name);
      std::vector<checkpoint::TensorPart>& parts = checkpoint.parts[record];
      if (slot.name != optim::kAverageSlot && is_rounded_anew(parts_[0].rows[row], division_.optimizer)) {
        add_rounded(record, {whole_[row].count(), slot.values}, parts);
        continue;
      }
      for_spans_of(row, parts, [&](const OwnedSpan& span, int64_t begin, int64_t end) {
        return part_in(span, {begin, end, number, slot.values}, own_.state, is_own(span));
      });
    }
  }

 private:
  bool is_own(const OwnedSpan& span) const { return span.owner == own_.rank; }

  // Appends what get(span, begin, end) makes of each span that has something of a parameter, which is [begin, end) in the flat buffer of a
  // part. What is not cut is in all of them alike, and the first one's.
  template <class Get>
  void for_spans_of(size_t row, std::vector<checkpoint::TensorPart>& parts, const Get& get) const {
    for (const PartState& part : parts_) {
      const layout::ParameterRow& of_part = part.rows[row];
      const auto cut = of_part.cut ? std::make_shared<const layout::RowCut>(*of_part.cut) : nullptr;
      const int64_t begin = part.layout.offsets[row], end = begin + of_part.count();
      auto span = std::partition_point(part.spans.begin(), part.spans.end(),
                                       [begin](const OwnedSpan& each) { return each.end <= begin; });
      for (; span != part.spans.end() && span->begin < end; ++span) {
        parts.push_back(get(*span, begin, end));
        parts.back().cut = cut;
      }
      if (!cut) break;
    }
  }

  void add_rounded(const std::string& record, const RoundedSize& size,
                   std::vector<checkpoint::TensorPart>& parts) const {
    const int64_t processes = division_.processes_of_stage();
    for (int64_t process = 0; process < processes; ++process) {
      const layout::FlatSpan share = rounded_by(process, processes, size);
      if (share.begin == share.end) continue;
      checkpoint::TensorPart& part =
          parts.emplace_back(checkpoint::TensorPart{share.begin, share.end, stage_ * processes + process});
      if (part.rank == own_.rank) part.values = own_.rounded.at(record);
    }
  }

  const Division& division_;
  const Own& own_;
  const int64_t stage_;
  std::vector<layout::ParameterRow> whole_;
  std::vector<PartState> parts_;
};

// The table has all adapters behind the model, and stages have theirs behind their own layers.
void put_in_order(const std::vector<layout::ParameterRow>& of_model, parameters::NamedTensors& tensors) {
  std::map<std::string_view, size_t> places;
  for (const layout::ParameterRow& row : of_model) places.emplace(row.name, places.size());
  std::ranges::stable_sort(tensors, {}, [&](const auto& tensor) { return places.at(tensor.first); });
}

}  // namespace

optim::OptimizerState state_of_stage(const optim::OptimizerState& saved, const Division& division,
                                     const std::vector<layout::ParameterRow>& rows) {
  if (!division.has_stages()) return saved;
  optim::OptimizerState own{{}, saved.step_count};
  for (const auto& [slot, tensors] : saved.slots)
    own.slots.emplace_back(slot, parameters::tensors_named_by(rows, tensors));
  return own;
}

void capture_parts(const optim::Optimizer& optimizer, const model::GPT& model,
                   const std::vector<layout::ParameterRow>& of_model, const Division& division,
                   const RoundedMoments& rounded, checkpoint::Checkpoint& checkpoint) {
  const bool has_values = division.divides_weights() || division.divides_layers() || division.has_stages();
  if (has_values) checkpoint.model.clear();
  checkpoint.optimizer = {};
  checkpoint.optimizer.step_count = optimizer.step_count();
  const StageParts::Own own{model.parameters(), optimizer.stretches(), rounded, division.all->rank()};
  for (int64_t stage = 0; stage < division.part().stages; ++stage) {
    const StageParts parts(model.config(), of_model, division, stage, own);
    for (size_t row = 0; row < parts.rows().size(); ++row) {
      if (stage > 0 && parts.rows()[row].layer < 0) continue;  // the table of a tied head is the first stage's
      if (has_values) parts.add_values(row, checkpoint);
      if (parts.rows()[row].is_trained) parts.add_state(row, checkpoint);
    }
  }
  put_in_order(of_model, checkpoint.model);
  for (auto& [slot, tensors] : checkpoint.optimizer.slots) put_in_order(of_model, tensors);
}

}  // namespace gpt::parallel
