#include "block_norms_kernel.h"

#include <cmath>

#include "gpt/layout/alignment.h"
#include "gpt/simd/float_pair.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

using c10::BFloat16;

template <class T>
void norms_of(const T* values, int64_t begin, int64_t end, float* norms) {
  constexpr int64_t kSize = FloatPair::size();
  static_assert(layout::kParameterAlignment % (2 * kSize) == 0);
  for (int64_t block = begin; block < end; ++block) {
    FloatPair even, odd;  // independent sums, so that an addition need not wait for the one before
    const T* from = values + block * layout::kParameterAlignment;
    for (int64_t i = 0; i < layout::kParameterAlignment; i += 2 * kSize) {
      const FloatPair a = load(from + i), b = load(from + i + kSize);
      even = fmadd(a, a, even);
      odd = fmadd(b, b, odd);
    }
    norms[block] = std::sqrt(sum_of((even.low + even.high) + (odd.low + odd.high)));
  }
}

}  // namespace

extern const BlockNormsKernel<float> block_norms_float32;
extern const BlockNormsKernel<BFloat16> block_norms_bfloat16;
const BlockNormsKernel<float> block_norms_float32 = norms_of<float>;
const BlockNormsKernel<BFloat16> block_norms_bfloat16 = norms_of<BFloat16>;

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
