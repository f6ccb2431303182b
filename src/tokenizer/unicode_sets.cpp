#include "unicode_sets.h"

#include <algorithm>

namespace gpt::unicode {

bool contains(std::span<const CodePointRange> ranges, char32_t value) {
  const auto later = std::upper_bound(ranges.begin(), ranges.end(), value,
                                      [](char32_t v, const auto& range) { return v < range.first; });
  return later != ranges.begin() && value <= std::prev(later)->last;
}

}  // namespace gpt::unicode
