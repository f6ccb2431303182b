// Products of float32 on a CPU that are computed together: threads take one part after the other, whichever product it is of, so that
// matrices too small for all threads keep them busy. A value's sum is the same for every number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace gpt::ops::cpu {

// result (M, N) = a b, from a (M, K) and b (K, N). Of each, neighbours of a row or of a column lie next to each other; those of a row of the
// result do.
struct PlainProduct {
  at::Tensor result, a, b;
};
void multiply_together(const std::vector<PlainProduct>& products);

// result (M, M) = a b + added_times added + diagonal I, all symmetric: half of it is computed, and mirrored. `added` (M, M) may be
// undefined.
struct SymmetricProduct {
  at::Tensor result, a, b, added = {};
  float added_times = 0, diagonal = 0;
};
void multiply_together(const std::vector<SymmetricProduct>& products);

}  // namespace gpt::ops::cpu
