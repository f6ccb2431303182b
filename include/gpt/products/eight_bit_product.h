// Products in 8 bits while training, whose factors (gpt/products/eight_bit_factor.h) are rounded for them: of int8 on a CPU, by AVX-512 VNNI
// or more slowly, and on a GPU by LibTorch; of fp8 on a GPU that has instructions for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "gpt/device/device.h"
#include "gpt/products/eight_bit_factor.h"

namespace gpt::ops {

// `matrix` (rows, columns <= kMostEightBitTerms) of float32 or bfloat16, on a GPU also float16, in any order. The result is the same for
// every number of threads.
EightBitFactor first_factor(const at::Tensor& matrix, EightBitType type);
EightBitFactor second_factor(const at::Tensor& matrix, EightBitType type);

// a b^T (M, N), plus the bias (N), if that is defined, of the given type: of float32 or bfloat16, on a GPU also float16. Without gradients.
at::Tensor eight_bit_product(const EightBitFactor& a, const EightBitFactor& b, const at::Tensor& bias,
                             at::ScalarType type);

// Adds a b^T to `result` (M, N), or writes it there.
void eight_bit_product_out(const at::Tensor& result, bool adds, const EightBitFactor& a, const EightBitFactor& b);

// Bytes of the second factor on a CPU, for a weight of this shape.
int64_t second_factor_bytes(int64_t rows, int64_t columns);

// Why factors of this type cannot be multiplied on a device; empty where they can. It follows the type's name: "needs a GPU ...".
std::string eight_bit_obstacle(EightBitType type, const device::DeviceInfo& device);

}  // namespace gpt::ops
