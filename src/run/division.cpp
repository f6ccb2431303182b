#include "gpt/run/division.h"

namespace gpt::run {

// The gradients of a smaller model travel in several stretches too, but not in such short ones that it takes longer to begin them.
int64_t Division::stretch(int64_t size) const {
  constexpr int64_t kStretches = 8, kLeastBytes = 4 << 20;
  constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
  const int64_t unit = kParameterAlignment * ranks->size();  // so that no part is padded, but in the last stretch
  const int64_t wanted = std::clamp(size / kStretches, kLeastBytes / kBytes, distributed::kStretchBytes / kBytes);
  return std::max<int64_t>(1, wanted / unit) * unit;
}

std::vector<FlatSpan> Division::spans(int64_t size) const {
  if (!divides_state) return {{0, size}};
  std::vector<FlatSpan> spans;
  const int64_t step = stretch(size);
  for (int64_t first = 0; first < size; first += step) {
    const auto [begin, end] = distributed::part_of(std::min(step, size - first), ranks->rank(), ranks->size());
    if (begin < end) spans.push_back({first + begin, first + end});
  }
  return spans;
}

}  // namespace gpt::run
