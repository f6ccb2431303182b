// The values that 8-bit moments may have, as parts of their block's largest magnitude, from the rule of Dettmers et al. (2022) and
// not from our kernels' arithmetic: https://arxiv.org/abs/2110.02861.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace gpt::test {

// In ascending order, so that a code is an index. Seven decades; each is cut into twice as many equal parts as the one below it, and
// the middle of a part is a value. Besides 0 and 1.
inline std::vector<double> moment_map(bool is_signed) {
  std::vector<double> map{0, 1};
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = (is_signed ? 1 : 2) * static_cast<int>(std::pow(2, decade));
    const double low = std::pow(10, decade - 7), high = std::pow(10, decade - 6);
    for (int part = 0; part < parts; ++part) {
      const double value = low + (high - low) * (part + 0.5) / parts;
      map.push_back(value);
      if (is_signed) map.push_back(-value);
    }
  }
  std::sort(map.begin(), map.end());
  return map;
}

// How far `code` may be from the nearest value to `part`. Our kernels find the code as a number in float32, from lines whose
// slope, product, offset and sum are rounded at a magnitude below 256: it is within 4 of 2^-17, and what lies so near to the middle
// between two values may become either of them.
inline bool is_nearest(const std::vector<double>& map, int code, double part, double error_of_part) {
  constexpr double kErrorOfNumber = 4 * 0x1p-17;
  const auto distance = [&](int other) { return std::abs(map[other] - part); };
  const double step = std::max(code > 0 ? map[code] - map[code - 1] : 0, code < 255 ? map[code + 1] - map[code] : 0);
  const double slack = kErrorOfNumber * step + error_of_part;
  return (code == 0 || distance(code) <= distance(code - 1) + 2 * slack) &&
         (code == 255 || distance(code) <= distance(code + 1) + 2 * slack);
}

}  // namespace gpt::test
