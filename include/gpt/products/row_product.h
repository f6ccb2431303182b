// The product of a few rows with a weight on a CPU, as generating a token has it. It takes as long as reading the weight, which is read
// once and in its own type: a weight of 16 bits takes half as long as one of float32. LibTorch's libraries are made for many rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace gpt::ops {

inline constexpr int64_t kMostFewRows = 16;  // with more, products of blocks are faster

// Whether row_product() is for this: a CPU's, of float32 rows (M, K), few enough that reading the weight (N, K) takes the longest.
bool has_few_rows(const at::Tensor& rows, const at::Tensor& weight);

// rows (M, K) times weight^T (K, N), plus the bias (N), if that is defined: (M, N) float32. The weight and its bias have one type,
// float32, bfloat16 or float16. Without gradients; sums are float32, and the same for every number of threads.
at::Tensor row_product(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias = {});

}  // namespace gpt::ops
