// The values that the codes of an 8-bit moment stand for, and the nearest code to a value, as arithmetic that needs no table and no
// branch. For all kernels; ops/moments.h says what it is good for. Static, because every kind of processor has its own
// (cmake/CpuKernels.cmake), and constexpr, because nvcc takes such functions for the device too.
//
// The values are numbered: 0 is number 0, and 1 is the last. Between them lie seven decades, of which decade d has the middles of
// 2^d (signed) or 2^(d + 1) equal parts of [10^(d - 7), 10^(d - 6)]. With a sign there are the negatives of all but 1 too. The code
// of a value is its number plus that of the negatives.
//
// From the number to the value is, within a decade, a straight line, and the slopes grow with the decades: so the largest of seven
// lines is the value. From the value to the number, with lines across the gaps between decades besides, the slopes shrink: so the
// smallest of 13 lines, rounded, is the number of the nearest value.
#pragma once

#include <cfloat>
#include <cstdint>
#include <utility>

namespace gpt::ops {

template <bool is_signed>
struct MomentMap {
  static constexpr int kDecades = 7;
  static constexpr int kLast = is_signed ? 128 : 255;
  static constexpr int kNegatives = is_signed ? kLast - 1 : 0;

  static constexpr int count(int decade) { return (is_signed ? 1 : 2) << decade; }
  static constexpr int first(int decade) { return count(decade) - count(0) + 1; }
  static constexpr double value(int number) {  // in [0, kLast]
    if (number == 0 || number == kLast) return number == 0 ? 0 : 1;
    int decade = 0;
    double power = 1e-6;
    while (number >= first(decade + 1)) ++decade, power *= 10;
    return power * (0.1 + 0.9 * (number - first(decade) + 0.5) / count(decade));
  }

  // Line 2 d goes through two numbers of decade d, or if it has but one through 0 and that; line 2 d + 1 from its last number to
  // the first of the next.
  static constexpr int kLines = 2 * kDecades - 1;
  static constexpr int begin_of_line(int line) {
    const bool is_gap = line % 2 == 1 || count(line / 2) == 1;
    return is_gap ? first((line + 1) / 2) - 1 : first(line / 2);
  }
  static constexpr double rise(int line) { return value(begin_of_line(line) + 1) - value(begin_of_line(line)); }
  static constexpr double offset(int line) { return value(begin_of_line(line)) - begin_of_line(line) * rise(line); }
};

namespace moment_map {

template <bool is_signed, int line>
constexpr float kRise = static_cast<float>(MomentMap<is_signed>::rise(line));
template <bool is_signed, int line>
constexpr float kOffset = static_cast<float>(MomentMap<is_signed>::offset(line));
template <bool is_signed, int line>
constexpr float kSlope = static_cast<float>(1 / MomentMap<is_signed>::rise(line));
template <bool is_signed, int line>
constexpr float kNumberAtZero =
    static_cast<float>(-MomentMap<is_signed>::offset(line) / MomentMap<is_signed>::rise(line));
template <bool is_signed>  // from here on the last number, to which another slope leads
constexpr float kTop = static_cast<float>((1 + MomentMap<is_signed>::value(MomentMap<is_signed>::kLast - 1)) / 2);

static constexpr float smaller(float a, float b) {
#ifdef __CUDA_ARCH__
  return fminf(a, b);
#else
  return a < b ? a : b;
#endif
}
static constexpr float larger(float a, float b) {
#ifdef __CUDA_ARCH__
  return fmaxf(a, b);
#else
  return a > b ? a : b;
#endif
}

template <bool is_signed, int... decades>
static constexpr float value_of(float number, std::integer_sequence<int, decades...> /*all*/) {
  float value = 0;
  ((value = larger(value, number * kRise<is_signed, 2 * decades> + kOffset<is_signed, 2 * decades>)), ...);
  return smaller(value, 1);
}

template <bool is_signed, int... lines>
static constexpr float number_of(float value, std::integer_sequence<int, lines...> /*all*/) {
  float number = MomentMap<is_signed>::kLast;
  ((number = smaller(number, value * kSlope<is_signed, lines> + kNumberAtZero<is_signed, lines>)), ...);
  return number;
}

}  // namespace moment_map

// What a code stands for, as a part of the block's largest magnitude.
template <bool is_signed>
static constexpr float decoded_moment(int code) {
  using Map = MomentMap<is_signed>;
  const auto number = static_cast<float>(code - Map::kNegatives);
  const float value = moment_map::value_of<is_signed>(is_signed && number < 0 ? -number : number,
                                                      std::make_integer_sequence<int, Map::kDecades>());
  return is_signed && number < 0 ? -value : value;
}

// The code for a part in [-1, 1], or [0, 1] without a sign.
template <bool is_signed>
static constexpr int encoded_moment(float part) {
  using Map = MomentMap<is_signed>;
  const float magnitude = is_signed && part < 0 ? -part : part;
  const float line = moment_map::number_of<is_signed>(magnitude, std::make_integer_sequence<int, Map::kLines>());
  const float number = magnitude >= moment_map::kTop<is_signed> ? Map::kLast : line;
  const int nearest =
      static_cast<int>(number + 0.5f);  // without a condition: a loop of these becomes vector instructions
  if (is_signed) {
    const int of_negative = nearest > Map::kNegatives ? Map::kNegatives : nearest;
    return part < 0 ? Map::kNegatives - of_negative : Map::kNegatives + nearest;
  }
  const int of_positive = nearest < 1 ? 1 : nearest;
  return part > 0 ? of_positive : 0;
}

// What the values of a block are multiplied by to be parts of its largest magnitude; 0 where that has no reciprocal.
static constexpr float reciprocal_of_maximum(float maximum) { return maximum >= FLT_MIN ? 1 / maximum : 0; }

}  // namespace gpt::ops
