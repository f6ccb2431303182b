#include "gpt/run/division.h"

#include "gpt/layout/layer_ends.h"

namespace gpt::run {
namespace {

// What is shorter takes longer to begin than to send.
constexpr int64_t kLeastStretch = (4 << 20) / static_cast<int64_t>(sizeof(float));

}  // namespace

// The gradients of a smaller model travel in several stretches too.
int64_t stretch_values(int64_t size, int64_t processes) {
  constexpr int64_t kStretches = 8, kLongest = distributed::kStretchBytes / static_cast<int64_t>(sizeof(float));
  const int64_t unit = kParameterAlignment * processes;  // so that no part is padded, but in the last stretch
  const int64_t wanted = std::clamp(size / kStretches, kLeastStretch, kLongest);
  return std::max<int64_t>(1, wanted / unit) * unit;
}

std::vector<int64_t> segment_ends(int64_t stage, const std::vector<ParameterRow>& rows, const FlatLayout& layout) {
  const std::vector<int64_t> of_layers = layer_ends(rows, layout);
  const int64_t least = stage > 2 ? 1 : kLeastStretch;
  std::vector<int64_t> ends;
  for (size_t layer = of_layers.size(); layer-- > 0;) {
    const int64_t begin = ends.empty() ? 0 : ends.back();
    if (of_layers[layer] - begin >= least) ends.push_back(of_layers[layer]);
  }
  if (ends.empty() || ends.back() < layout.trained_size) ends.push_back(layout.trained_size);
  return ends;
}

std::vector<Segment> Division::segments(const std::vector<ParameterRow>& rows, const FlatLayout& layout) const {
  const int64_t size = layout.trained_size, step = stretch_values(size, ranks->size());
  std::vector<Segment> segments;
  int64_t begin = 0;
  for (const int64_t end :
       divides_gradients ? segment_ends(divides_weights ? 3 : 2, rows, layout) : std::vector{size}) {
    Segment& segment = segments.emplace_back();
    for (; begin < end; begin = segment.back().end) segment.push_back({begin, std::min(begin + step, end)});
  }
  return segments;
}

FlatSpan Division::own_part(FlatSpan stretch) const {
  const auto [begin, end] = distributed::part_of(stretch.end - stretch.begin, ranks->rank(), ranks->size());
  return {stretch.begin + begin, stretch.begin + end};
}

std::vector<FlatSpan> Division::spans(const std::vector<ParameterRow>& rows, const FlatLayout& layout) const {
  if (!divides_state) return {{0, layout.trained_size}};
  std::vector<FlatSpan> spans;
  for (const Segment& segment : segments(rows, layout))
    for (const FlatSpan& stretch : segment)
      if (const FlatSpan own = own_part(stretch); own.begin < own.end) spans.push_back(own);
  return spans;
}

std::optional<ValueDivision> Division::values(const std::vector<ParameterRow>& rows, const FlatLayout& layout) const {
  if (!divides_weights) return std::nullopt;
  ValueDivision values{.blocks = {}, .own = spans(rows, layout)};
  const std::vector<int64_t> ends = layer_ends(rows, layout);
  for (size_t layer = 0; layer + 1 < ends.size(); ++layer) values.blocks.push_back({ends[layer + 1], ends[layer]});
  return values;
}

}  // namespace gpt::run
