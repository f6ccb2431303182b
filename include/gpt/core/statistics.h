#pragma once

#include <algorithm>
#include <vector>

namespace gpt {

// The mean of the two in the middle where their number is even. `values` must not be empty.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t upper = values.size() / 2, lower = (values.size() - 1) / 2;
  return (values[lower] + values[upper]) / 2;
}

}  // namespace gpt
