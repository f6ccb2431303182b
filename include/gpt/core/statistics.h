#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

namespace gpt {

// The mean of the two in the middle where their number is even. `values` must not be empty.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t upper = values.size() / 2, lower = (values.size() - 1) / 2;
  return (values[lower] + values[upper]) / 2;
}

// Student's t for an interval of 95 % on both sides, by the degrees of freedom, which are one at least.
inline double student_t(size_t freedom) {
  constexpr double kStudent[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306};
  return kStudent[std::min(freedom, std::size(kStudent)) - 1];
}

}  // namespace gpt
