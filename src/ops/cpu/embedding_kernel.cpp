#include "embedding_kernel.h"

#include "gpt/simd/row_steps.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

template <class T>
void forward(const EmbeddingRows<T>& of, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T *token = of.table + of.ids[row] * of.C,
            *position = of.positions ? of.positions + row % of.length * of.C : nullptr;
    RowMask mask(of.dropout, row);
    for_each_step(of.C, [&](int64_t c, auto count) {
      FloatPair sum = load(token + c, count);
      if (position) sum = sum + load(position + c, count);
      if (of.dropout) sum = sum * mask.at(c);
      store(sum, of.y + row * of.C + c, count);
    });
  }
}

template <class T>
void backward(const DropoutMask& dropout, int64_t C, const T* gradient, int64_t begin, int64_t end, float* rows) {
  for (int64_t row = begin; row < end; ++row) {
    RowMask mask(dropout, row);
    for_each_step(C, [&](int64_t c, auto count) {
      const FloatPair upstream = load(gradient + row * C + c, count);
      store(dropout ? upstream * mask.at(c) : upstream, rows + row * C + c, count);
    });
  }
}

}  // namespace

extern const EmbeddingKernels<float> embedding_float32;
const EmbeddingKernels<float> embedding_float32{forward<float>, backward<float>};
extern const EmbeddingKernels<c10::BFloat16> embedding_bfloat16;
const EmbeddingKernels<c10::BFloat16> embedding_bfloat16{forward<c10::BFloat16>, backward<c10::BFloat16>};

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
