// The nearest matrix with orthogonal rows or columns, about: five steps of the Newton-Schulz iteration, with the coefficients of Jordan et
// al. (2024), "Muon: An optimizer for hidden layers in neural networks". They take every singular value above about 0.001 of the norm to
// between 0.7 and 1.2, which trains as well as 1 and takes fewer products than coming nearer.
//
// A step makes X (m, n), m <= n, into F X with F = a I + b G + c G G, where G = X X^T. In float32 on a CPU, X itself is multiplied only
// once: F is of G alone, G becomes F G F, and the product of all F is P. All of these (m, m) are symmetric, so that half of each product is
// enough, and wide matrices cost as much as square ones. Coarser numbers would lose the small singular values, whose squares are in G.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "gpt/device/device.h"

namespace gpt::optim {

// bfloat16 where products in it are fast, otherwise float32. float16 has too small a range.
at::ScalarType newton_schulz_type(const device::DeviceInfo& device);

// `to` becomes the orthogonal matrix of `from` (rows, columns) times `times`; both of one type of the above, on one device, and `from` lies
// row by row. 0 stays 0.
struct Orthogonalization {
  at::Tensor from, to;
  double times = 1;
};
// Orthogonalizes all matrices, together where that is faster.
void orthogonalize(const std::vector<Orthogonalization>& matrices);

// Floating-point operations of the steps as they are written, and the least, of squares alone and half of each; bytes at the most beside both
// matrices.
double newton_schulz_flops(int64_t rows, int64_t columns);
double least_newton_schulz_flops(int64_t rows, int64_t columns);
double newton_schulz_workspace(int64_t rows, int64_t columns, at::ScalarType type);

}  // namespace gpt::optim
