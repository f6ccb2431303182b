#include "gpt/parallel/division.h"

#include <fmt/format.h>

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

// The gradients of a smaller model travel in several stretches too.
int64_t stretch_values(int64_t size, int64_t processes) {
  constexpr int64_t kStretches = 8, kLongest = distributed::kStretchBytes / static_cast<int64_t>(sizeof(float));
  const int64_t unit = layout::kParameterAlignment * processes;  // so that no part is padded, but in the last stretch
  const int64_t wanted = std::clamp(size / kStretches, kLeastStretch, kLongest);
  return std::max<int64_t>(1, wanted / unit) * unit;
}

std::vector<int64_t> segment_ends(int64_t zero, const std::vector<layout::ParameterRow>& rows,
                                  const layout::FlatLayout& layout, bool is_of_stage) {
  const std::vector<int64_t> of_layers = layout::layer_ends(rows, layout);
  const int64_t least = zero > 2 ? 1 : kLeastStretch;
  std::vector<int64_t> ends;
  for (size_t layer = of_layers.size(); layer-- > 0;) {
    const int64_t begin = ends.empty() ? 0 : ends.back();
    if (of_layers[layer] - begin >= least) ends.push_back(of_layers[layer]);
  }
  const auto table = is_of_stage ? layout::tied_row(rows) : std::nullopt;
  if (table && rows[*table].is_trained && layout.offsets[*table] > (ends.empty() ? 0 : ends.back()))
    ends.push_back(layout.offsets[*table]);
  if (ends.empty() || ends.back() < layout.trained_size) ends.push_back(layout.trained_size);
  return ends;
}

// A matrix goes to the process that has the least so far, those that take longest first.
std::vector<int64_t> owners_of_matrices(const std::vector<layout::ParameterRow>& rows, const OptimizerConfig& optimizer,
                                        int64_t processes) {
  std::vector<double> costs;
  for (const size_t i : layout::flat_order(rows))
    if (optim::is_of_muon(rows[i], optimizer)) costs.push_back(optim::update_flops(rows[i]));
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
std::vector<OwnedSpan> undivided(const Division& division, const std::vector<layout::ParameterRow>& rows,
                                 const layout::FlatLayout& layout) {
  if (!division.divides_state() || !division.optimizer.has_muon()) return {OwnedSpan{{0, layout.trained_size}}};
  OptimizerConfig plain;  // how state is kept may change when a run goes on, who has it does not
  plain.kind = division.optimizer.kind;
  const std::vector<int64_t> owners = owners_of_matrices(rows, plain, division.ranks->size());
  auto owner = owners.begin();
  std::vector<OwnedSpan> spans;
  int64_t begin = 0;
  for (const optim::StateRange& range : optim::state_ranges(rows, layout, plain)) {
    const bool is_matrix = range.form.kind != OptimizerKind::adamw;
    if (!is_matrix && range.end - begin < kLeastStretch && range.end < layout.trained_size) continue;
    spans.push_back({{begin, range.end}, is_matrix ? *owner++ : distributed::kEach});
    begin = range.end;
  }
  return spans;
}

}  // namespace

std::string Division::speaks_within_passes_with() const {
  if (divides_layers()) return "tensor_parallel";
  if (has_stages()) return "pipeline_parallel";
  return divides_gradients() ? fmt::format("zero: {}", zero) : "";
}

std::vector<Segment> Division::segments(const std::vector<layout::ParameterRow>& rows,
                                        const layout::FlatLayout& layout) const {
  const int64_t size = layout.trained_size;
  const std::vector<OwnedSpan> all = undivided(*this, rows, layout);
  std::vector<Segment> segments;
  int64_t begin = 0;
  for (const int64_t end : divides_gradients() ? segment_ends(zero, rows, layout, has_stages()) : std::vector{size}) {
    Segment& segment = segments.emplace_back();
    // Stages take the length of the segment, because their buffers differ: so both ends cut the tied table alike.
    const int64_t step = stretch_values(has_stages() ? end - begin : size, ranks->size());
    for (const OwnedSpan& span : all) {
      const int64_t last = std::min(end, span.end);
      const int64_t most = span.owner == distributed::kEach ? step : size;
      for (int64_t first = std::max(begin, span.begin); first < last; first = segment.back().end)
        segment.push_back({{first, std::min(first + most, last)}, span.owner});
    }
    begin = end;
  }
  return segments;
}

layout::FlatSpan Division::part_of(const OwnedSpan& span, int64_t rank) const {
  if (span.owner != distributed::kEach) return {span.begin, rank == span.owner ? span.end : span.begin};
  const auto [begin, end] = distributed::part_of(span.end - span.begin, rank, ranks->size());
  return {span.begin + begin, span.begin + end};
}

std::vector<layout::FlatSpan> Division::spans(const std::vector<layout::ParameterRow>& rows,
                                              const layout::FlatLayout& layout, int64_t rank) const {
  if (!divides_state()) return {{0, layout.trained_size}};
  std::vector<layout::FlatSpan> spans;
  for (const Segment& segment : segments(rows, layout))
    for (const OwnedSpan& span : segment)
      if (const layout::FlatSpan own = part_of(span, rank); own.begin < own.end) spans.push_back(own);
  return spans;
}

std::optional<parameters::ValueDivision> Division::values(const std::vector<layout::ParameterRow>& rows,
                                                          const layout::FlatLayout& layout) const {
  if (!divides_weights()) return std::nullopt;
  parameters::ValueDivision values{.blocks = {}, .own = spans(rows, layout)};
  const std::vector<int64_t> ends = layout::layer_ends(rows, layout);
  for (size_t layer = 0; layer + 1 < ends.size(); ++layer) values.blocks.push_back({ends[layer + 1], ends[layer]});
  return values;
}

}  // namespace gpt::parallel
