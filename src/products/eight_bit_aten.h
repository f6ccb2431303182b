// Products of 8 bits by LibTorch's operators, which a GPU has kernels for.
#pragma once

#include "gpt/products/eight_bit_factor.h"

namespace gpt::ops {

// Either factor: its codes lie in rows.
EightBitFactor eight_bit_factor_by_aten(const at::Tensor& matrix, EightBitType type);

at::Tensor eight_bit_product_by_aten(const EightBitFactor& a, const EightBitFactor& b, const at::Tensor& bias,
                                     at::ScalarType type);

}  // namespace gpt::ops
