// The nearest matrix with orthogonal rows or columns, about: five steps of the Newton-Schulz iteration, with the coefficients of Jordan et
// al. (2024), "Muon: An optimizer for hidden layers in neural networks". They take every singular value above about 0.001 of the norm to
// between 0.7 and 1.2, which trains as well as 1 and takes fewer products than coming nearer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "gpt/device/device.h"

namespace gpt {

// bfloat16 where products in it are fast, otherwise float32. float16 has too small a range.
at::ScalarType newton_schulz_type(const DeviceInfo& device);

// x (rows, columns) of either type, on any device; the result is of its type. 0 stays 0.
at::Tensor orthogonalized(const at::Tensor& x);

// Floating-point operations, and bytes at the most beside x and the result.
double newton_schulz_flops(int64_t rows, int64_t columns);
double newton_schulz_workspace(int64_t rows, int64_t columns, at::ScalarType type);

}  // namespace gpt
