// The product of rows with a weight of 8 or 4 bits in vector instructions, for one thread. quantized_product_kernel.cpp is compiled for
// several kinds of processor (cmake/CpuKernels.cmake); quantized_product.cpp distributes the work.
//
// A panel is 16 rows of the weight, which a vector's 32-bit sums take together. Its terms, padded to a multiple of kTerms, lie in the order
// in which they are multiplied: four neighbouring terms of the first row, the same four of the next row, and so on. There is no sum across
// a vector, and the weight is read from its beginning to its end.
//
//   int8  for each group 64 bytes: 16 scales, float32. Then for each 4 terms of the group 64 bytes: code + 128.
//   int4  for each group 64 bytes: 16 scales and 16 offsets, bfloat16. Then for each 8 terms of the group 64 bytes: the codes of the first
//         four terms in the lower halves, and those of the other four in the upper ones.
#pragma once

#include <cstdint>

namespace gpt::ops::cpu {

inline constexpr int64_t kPanelRows = 16, kTerms = 8, kQuantizedGroup = 64;
inline constexpr int64_t kActivationGroup =
    32;  // values of a row of x that share a scale: few find a far larger one beside them
inline constexpr int64_t kPanelStep = 64;  // bytes that are read at once

constexpr int64_t quantized_groups(int64_t terms) { return (terms + kQuantizedGroup - 1) / kQuantizedGroup; }
constexpr int64_t activation_groups(int64_t terms) { return (terms + kActivationGroup - 1) / kActivationGroup; }
constexpr int64_t panel_bytes_int8(int64_t terms) { return quantized_groups(terms) * kPanelStep + terms * kPanelRows; }
constexpr int64_t panel_bytes_int4(int64_t terms) {
  return quantized_groups(terms) * kPanelStep + terms * kPanelRows / 2;
}

// y = x weight^T + bias, where a value of x is its code times the scale of its group.
struct QuantizedProductArguments {
  int64_t M, K, N;        // K is a multiple of kTerms
  const int8_t* x;        // (M, K), -127 to 127
  const float* x_scales;  // (M, activation groups)
  const int32_t* x_sums;  // (M, activation groups): of a group's codes
  const uint8_t* panels;  // aligned to 64 bytes
  const float* bias;      // (N) or null
  float* y;               // (M, N)
};

struct QuantizedProductKernel {
  // A row of x of so many values into codes, which are padded with 0 to `terms`, and a scale and a sum for each group. The scale is the
  // largest magnitude / 127; it is not a number where a value of the group is not finite.
  void (*quantize_row)(const float* x, int64_t count, int64_t terms, int8_t* codes, float* scales, int32_t* sums);
  // The columns of y that these panels stand for.
  void (*multiply_int8)(const QuantizedProductArguments& product, int64_t first_panel, int64_t last_panel);
  void (*multiply_int4)(const QuantizedProductArguments& product, int64_t first_panel, int64_t last_panel);
};

}  // namespace gpt::ops::cpu
