#include "gpt/parallel/division.h"

#include <algorithm>
#include <numeric>

#include "gpt/layout/layer_ends.h"
#include "gpt/optim/muon.h"
#include "gpt/optim/optimizer_state.h"

namespace gpt::parallel {
namespace {

// What is shorter takes longer to begin than to send.
constexpr int64_t kLeastStretch = (4 << 20) / static_cast<int64_t>(sizeof(float));

}  // namespace

Parameter table_of_both_ends(const Parameters& parameters, const distributed::Pipeline& pipeline) {
  const auto row = tied_row(parameters.rows());
  return row && pipeline.ends->size() > 1 ? parameters[*row] : Parameter();
}

Parameter trained_table_of_both_ends(const Parameters& parameters, const distributed::Pipeline& pipeline) {
  const Parameter table = table_of_both_ends(parameters, pipeline);
  return table.is_trained() ? table : Parameter();
}

void make_table_equal(const Parameters& parameters, const distributed::Pipeline& pipeline) {
  const Parameter table = table_of_both_ends(parameters, pipeline);
  if (!table.defined()) return;
  const auto& divided = parameters.divided_values();
  if (!divided) return pipeline.ends->broadcast(table.value().detach());
  const int64_t begin = parameters.layout().offsets[*tied_row(parameters.rows())], end = begin + table.value().numel();
  for (const auto& [span, values] : divided->own()) {
    const int64_t first = std::max(begin, span.begin), last = std::min(end, span.end);
    if (first < last) pipeline.ends->broadcast(values.slice(0, first - span.begin, last - span.begin));
  }
}

// The gradients of a smaller model travel in several stretches too.
int64_t stretch_values(int64_t size, int64_t processes) {
  constexpr int64_t kStretches = 8, kLongest = distributed::kStretchBytes / static_cast<int64_t>(sizeof(float));
  const int64_t unit = kParameterAlignment * processes;  // so that no part is padded, but in the last stretch
  const int64_t wanted = std::clamp(size / kStretches, kLeastStretch, kLongest);
  return std::max<int64_t>(1, wanted / unit) * unit;
}

std::vector<int64_t> segment_ends(int64_t stage, const std::vector<ParameterRow>& rows, const FlatLayout& layout,
                                  bool is_of_stage) {
  const std::vector<int64_t> of_layers = layer_ends(rows, layout);
  const int64_t least = stage > 2 ? 1 : kLeastStretch;
  std::vector<int64_t> ends;
  for (size_t layer = of_layers.size(); layer-- > 0;) {
    const int64_t begin = ends.empty() ? 0 : ends.back();
    if (of_layers[layer] - begin >= least) ends.push_back(of_layers[layer]);
  }
  const auto table = is_of_stage ? tied_row(rows) : std::nullopt;
  if (table && rows[*table].is_trained && layout.offsets[*table] > (ends.empty() ? 0 : ends.back()))
    ends.push_back(layout.offsets[*table]);
  if (ends.empty() || ends.back() < layout.trained_size) ends.push_back(layout.trained_size);
  return ends;
}

// A matrix goes to the process that has the least so far, those that take longest first.
std::vector<int64_t> owners_of_matrices(const std::vector<ParameterRow>& rows, const OptimizerConfig& optimizer,
                                        int64_t processes) {
  std::vector<double> costs;
  for (const size_t i : flat_order(rows))
    if (is_of_muon(rows[i], optimizer)) costs.push_back(update_flops(rows[i]));
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&costs](size_t a, size_t b) { return costs[a] > costs[b]; });
  std::vector<int64_t> owners(costs.size());
  std::vector<double> of_processes(static_cast<size_t>(processes));
  for (const size_t matrix : order) {
    const auto least = std::min_element(of_processes.begin(), of_processes.end());
    *least += costs[matrix];
    owners[matrix] = least - of_processes.begin();
  }
  return owners;
}

namespace {

// The flat buffer in stretches of any length: all of it, or each of Muon's matrices apart, with the norms and biases before it, which would not
// be worth sending alone.
std::vector<Stretch> undivided(const Division& division, const std::vector<ParameterRow>& rows,
                               const FlatLayout& layout) {
  if (!division.divides_state || !division.optimizer.has_muon()) return {Stretch{{0, layout.trained_size}}};
  OptimizerConfig plain;  // how state is kept may change when a run goes on, who has it does not
  plain.kind = division.optimizer.kind;
  const std::vector<int64_t> owners = owners_of_matrices(rows, plain, division.ranks->size());
  auto owner = owners.begin();
  std::vector<Stretch> stretches;
  int64_t begin = 0;
  for (const StateRange& range : state_ranges(rows, layout, plain)) {
    const bool is_matrix = range.form.kind != OptimizerKind::adamw;
    if (!is_matrix && range.end - begin < kLeastStretch && range.end < layout.trained_size) continue;
    stretches.push_back({{begin, range.end}, is_matrix ? *owner++ : distributed::kEach});
    begin = range.end;
  }
  return stretches;
}

}  // namespace

std::vector<Segment> Division::segments(const std::vector<ParameterRow>& rows, const FlatLayout& layout) const {
  const int64_t size = layout.trained_size;
  const std::vector<Stretch> all = undivided(*this, rows, layout);
  std::vector<Segment> segments;
  int64_t begin = 0;
  for (const int64_t end :
       divides_gradients ? segment_ends(divides_weights ? 3 : 2, rows, layout, has_stages()) : std::vector{size}) {
    Segment& segment = segments.emplace_back();
    // Of stages, whose buffers differ, so that both ends cut the tied table alike.
    const int64_t step = stretch_values(has_stages() ? end - begin : size, ranks->size());
    for (const Stretch& stretch : all) {
      const int64_t last = std::min(end, stretch.end);
      const int64_t most = stretch.owner == distributed::kEach ? step : size;
      for (int64_t first = std::max(begin, stretch.begin); first < last; first = segment.back().end)
        segment.push_back({{first, std::min(first + most, last)}, stretch.owner});
    }
    begin = end;
  }
  return segments;
}

FlatSpan Division::part_of(const Stretch& stretch, int64_t rank) const {
  if (stretch.owner != distributed::kEach) return {stretch.begin, rank == stretch.owner ? stretch.end : stretch.begin};
  const auto [begin, end] = distributed::part_of(stretch.end - stretch.begin, rank, ranks->size());
  return {stretch.begin + begin, stretch.begin + end};
}

std::vector<FlatSpan> Division::spans(const std::vector<ParameterRow>& rows, const FlatLayout& layout,
                                      int64_t rank) const {
  if (!divides_state) return {{0, layout.trained_size}};
  std::vector<FlatSpan> spans;
  for (const Segment& segment : segments(rows, layout))
    for (const Stretch& stretch : segment)
      if (const FlatSpan own = part_of(stretch, rank); own.begin < own.end) spans.push_back(own);
  return spans;
}

std::optional<ValueDivision> Division::values(const std::vector<ParameterRow>& rows, const FlatLayout& layout) const {
  if (!divides_weights) return std::nullopt;
  ValueDivision values{.blocks = {}, .own = spans(rows, layout)};
  const std::vector<int64_t> ends = layer_ends(rows, layout);
  for (size_t layer = 0; layer + 1 < ends.size(); ++layer) values.blocks.push_back({ends[layer + 1], ends[layer]});
  return values;
}

}  // namespace gpt::parallel
