// Products of factors of int8 on a CPU.
#pragma once

#include "gpt/products/eight_bit_factor.h"

namespace gpt::ops::cpu {

EightBitFactor int8_first_factor(const at::Tensor& matrix);
EightBitFactor int8_second_factor(const at::Tensor& matrix);

int64_t int8_second_factor_bytes(int64_t rows, int64_t columns);

// Into `result` (M, N), contiguous, of float32 or bfloat16; `bias` (N) of any type, or undefined.
void int8_product(const at::Tensor& result, bool adds, const EightBitFactor& a, const EightBitFactor& b,
                  const at::Tensor& bias);

}  // namespace gpt::ops::cpu
