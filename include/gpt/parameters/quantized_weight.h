// Weights of 8 and 4 bits, as they are stored: whole numbers, with what each kGroup neighbours of a row are multiplied by.
//
//   int8  a weight is code * scale. A code is -127 to 127; the scale, in float32, is the group's largest magnitude / 127. 8.5 bits a
//         weight.
//   int4  a weight is code * scale + offset. A code is 0 to 15; scale and offset, in bfloat16, are those with which the squares of the
//         errors add up to the least that a short search finds. 4.5 bits a weight.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace gpt::parameters {

enum class QuantizedType { int8, int4 };

std::string_view name_of(QuantizedType type);  // "int8", "int4"

struct QuantizedWeight {
  static constexpr int64_t kGroup = 64;  // the last group of a row may be shorter

  QuantizedType type = QuantizedType::int8;
  int64_t rows = 0, columns = 0;
  at::Tensor
      codes;  // (rows, columns) int8; of int4 (rows, ceil(columns / 2)) uint8, the code of an even column in the lower half
  at::Tensor scales;   // (rows, groups) float32; of int4 bfloat16
  at::Tensor offsets;  // of int4 (rows, groups) bfloat16

  int64_t groups() const { return (columns + kGroup - 1) / kGroup; }
  int64_t bytes() const;
};

// `weight` (rows, columns), of any type that holds floats, on the CPU and finite. The same for every number of threads.
QuantizedWeight quantize(const at::Tensor& weight, QuantizedType type);

// (rows, columns) of `type`, float32 or bfloat16: what the codes stand for.
at::Tensor dequantize(const QuantizedWeight& weight, at::ScalarType type = at::kFloat);
// The same of the rows `ids` (N) int64: (N, columns). Throws c10::Error for one that it does not have.
at::Tensor dequantize_rows(const QuantizedWeight& weight, const at::Tensor& ids, at::ScalarType type = at::kFloat);

}  // namespace gpt::parameters
