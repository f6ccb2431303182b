// A factor of a product whose factors are rounded to 8 bits, each row of it, of which a sum takes all values, by a scale of its own, to
// nearest:
//
//   int8  a whole number up to 127; the scale is the largest magnitude / 127. Sums of products are whole numbers, and exact.
//   fp8   E4M3, whose largest number is 448; the scale is the largest magnitude / 448.
//
// Where a value is not finite, the scale is not a number, and so is what is made of its row.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace gpt::ops {

enum class EightBitType { int8, fp8 };

// The most terms of a sum: so many products of 127 and 127 have room in 32 bits.
inline constexpr int64_t kMostEightBitTerms = 1 << 17;

// A factor, whose rows are those of the result (the first), or its columns (the second).
struct EightBitFactor {
  EightBitType type = EightBitType::int8;
  int64_t rows = 0, columns = 0;
  at::Tensor codes;        // on a GPU (rows, columns); on a CPU in the order in which they are multiplied
  at::Tensor scales;       // (rows) float32, on a CPU with some more
  at::Tensor corrections;  // of the second factor on a CPU: where its sums begin
};

}  // namespace gpt::ops
