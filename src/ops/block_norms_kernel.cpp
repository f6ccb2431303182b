#include "block_norms_kernel.h"

#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>

#include <cmath>

#include "gpt/parameters/alignment.h"
#include "vector_math.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

using c10::BFloat16;

constexpr int64_t kSums = 4;  // independent ones, so that an addition need not wait for the one before

// Adds the squares of kSums vectors.
void add_squares(const float* values, FloatVector (&sums)[kSums]) {
  for (int64_t i = 0; i < kSums; ++i) {
    const FloatVector v = FloatVector::loadu(values + i * FloatVector::size());
    sums[i] = at::vec::fmadd(v, v, sums[i]);
  }
}

void add_squares(const BFloat16* values, FloatVector (&sums)[kSums]) {
  using Narrow = at::vec::Vectorized<BFloat16>;
  for (int64_t i = 0; i < kSums; i += 2) {
    const auto [low, high] = at::vec::convert_to_float<BFloat16>(Narrow::loadu(values + i * FloatVector::size()));
    sums[i] = at::vec::fmadd(low, low, sums[i]);
    sums[i + 1] = at::vec::fmadd(high, high, sums[i + 1]);
  }
}

template <class T>
void norms_of(const T* values, int64_t begin, int64_t end, float* norms) {
  constexpr int64_t kAtOnce = kSums * FloatVector::size();
  static_assert(kParameterAlignment % kAtOnce == 0);
  for (int64_t block = begin; block < end; ++block) {
    FloatVector sums[kSums] = {FloatVector(0.0f), FloatVector(0.0f), FloatVector(0.0f), FloatVector(0.0f)};
    const T* from = values + block * kParameterAlignment;
    for (int64_t i = 0; i < kParameterAlignment; i += kAtOnce) add_squares(from + i, sums);
    norms[block] = std::sqrt(sum_of((sums[0] + sums[1]) + (sums[2] + sums[3])));
  }
}

}  // namespace

extern const BlockNormsKernel<float> block_norms_float32;
extern const BlockNormsKernel<BFloat16> block_norms_bfloat16;
const BlockNormsKernel<float> block_norms_float32 = norms_of<float>;
const BlockNormsKernel<BFloat16> block_norms_bfloat16 = norms_of<BFloat16>;

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
