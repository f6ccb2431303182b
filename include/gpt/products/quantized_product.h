// Products with weights of 8 and 4 bits on a CPU. A row of activations is rounded to 8 bits too, each 32 neighbours by a scale of their
// own, so that sums of 32 products are whole numbers, for which processors have instructions (AVX-512 VNNI, or AVX2's), and exact. For one row
// a product takes as long as reading the weight; for many rows it is faster than that of float32.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "gpt/parameters/quantized_weight.h"

namespace gpt::ops {

// The same values in the order in which they are multiplied (src/products/quantized_product_kernel.h).
struct PackedWeight {
  parameters::QuantizedType type = parameters::QuantizedType::int8;
  int64_t rows = 0, columns = 0;
  at::Tensor panels;  // (rows rounded up to 16, bytes of a row) uint8

  int64_t bytes() const { return static_cast<int64_t>(panels.nbytes()); }
};
PackedWeight pack(const parameters::QuantizedWeight& weight);

// rows (M, K) float32 times weight^T (K, N), plus the bias (N) float32, if that is defined: (M, N) float32. The same for every number of
// threads. An infinite value, or one that is not a number, makes all results of its row not a number. Without gradients.
at::Tensor quantized_product(const at::Tensor& rows, const PackedWeight& weight, const at::Tensor& bias = {});

// The rows `ids` (M) int64 of a weight of type int8: (M, K) float32. Throws c10::Error for one that it does not have.
at::Tensor rows_of(const PackedWeight& weight, const at::Tensor& ids);

}  // namespace gpt::ops
