// Products of matrices of whole numbers of 8 bits in vector instructions, for one thread. int8_product_kernel.cpp is compiled for several
// kinds of processor (cmake/CpuKernels.cmake); int8_product.cpp allocates and distributes the work.
//
// The rows of both factors are rounded alike, each by a scale of its own. Those of the second one, of which the result has a column each, are
// packed in panels of 16, which a vector's 32-bit sums take together: four neighbouring terms of the first row, the same four of the next
// row, and so on. A kernel may keep the codes of the first factor with an offset, for which `corrections` make up in the sums; so both
// factors must come from the same kernel.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace gpt::ops::cpu {

inline constexpr int64_t kInt8Columns = 16;  // of a panel
inline constexpr int64_t kInt8Terms = 64;    // rows have a whole number of these, filled up with zeros

struct Int8Arguments {
  int64_t terms;               // of a sum, a multiple of kInt8Terms
  const int8_t* codes;         // (rows, terms) of the first factor
  int64_t stride;              // from row to row
  const float* scales;         // (rows)
  const int8_t* panels;        // (panels, terms, kInt8Columns) of the second, aligned to 64 bytes
  const float* panel_scales;   // (panels * kInt8Columns)
  const int32_t* corrections;  // as many
  const float* bias;           // (columns) or null
  int64_t columns;             // of the result: in the last panel there may be fewer
};

struct Int8Part {
  int64_t first_row, last_row, first_panel, last_panel;
};

struct Int8Kernel {
  // A row of so many values into codes, which are filled up with zeros to `terms`, and its scale: the largest magnitude / 127. That is not a
  // number where a value is not finite. `is_first`: of the first factor.
  float (*round_float)(const float* row, int64_t count, int64_t terms, bool is_first, int8_t* codes);
  float (*round_bfloat16)(const c10::BFloat16* row, int64_t count, int64_t terms, bool is_first, int8_t* codes);
  // kInt8Columns rows of codes (kInt8Columns, terms) into a panel.
  void (*pack)(const int8_t* codes, int64_t terms, int8_t* panel, int32_t* corrections);
  // result (rows, columns) = a b^T + bias, or, `adds`, added to what is there: float32 sums, rounded once.
  void (*multiply_float)(const Int8Arguments& of, const Int8Part& part, bool adds, float* result);
  void (*multiply_bfloat16)(const Int8Arguments& of, const Int8Part& part, bool adds, c10::BFloat16* result);
};

}  // namespace gpt::ops::cpu
