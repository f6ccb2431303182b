#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>

#include <algorithm>

#include "gpt/ops/rotary.h"
#include "ops/kernels.h"
#include "row_grain.h"

namespace gpt::ops::cpu {
namespace {

// A head of twice `half` values; y may be x.
template <class T>
void rotate(const T* x, const float* cos, const float* sin, int64_t half, int direction, T* y) {
  for (int64_t i = 0; i < half; ++i) {
    const float first = x[i], second = x[half + i], turn = static_cast<float>(direction) * sin[i];
    y[i] = first * cos[i] - second * turn;
    y[half + i] = second * cos[i] + first * turn;
  }
}

template <class T>
void join(const RotaryTables& rotary, int direction, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
          const at::Tensor& packed) {
  const int64_t positions = packed.size(1), D = packed.size(3), width = packed.size(2) * D, stride = packed.stride(1);
  T* const to = packed.mutable_data_ptr<T>();
  const auto write = [&](const at::Tensor& from, bool is_rotated, int64_t token, int64_t first) {
    const int64_t batch = token / positions, position = token % positions;
    const T* x = from.const_data_ptr<T>() + batch * from.stride(0) + position * from.stride(1);
    for (int64_t head = 0; head < from.size(2); ++head, x += from.stride(2)) {
      T* const y = to + token * stride + (first + head) * D;
      if (is_rotated) {
        const int64_t at = position * D / 2;
        rotate(x, rotary.cos.const_data_ptr<float>() + at, rotary.sin.const_data_ptr<float>() + at, D / 2, direction,
               y);
      } else {
        std::copy_n(x, D, y);
      }
    }
  };
  const bool rotates = rotary.cos.defined();
  at::parallel_for(0, packed.size(0) * positions, row_grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      write(q, rotates, token, 0);
      write(k, rotates, token, q.size(2));
      if (v.defined()) write(v, false, token, q.size(2) + k.size(2));
    }
  });
}

}  // namespace

at::Tensor join_heads(const RotaryTables& rotary, int direction, const at::Tensor& q, const at::Tensor& k,
                      const at::Tensor& v, const at::Tensor& packed, bool /*sums_rows*/) {
  const auto join = packed.scalar_type() == at::kFloat ? cpu::join<float> : cpu::join<c10::BFloat16>;
  join(rotary, direction, q, k, v, packed);
  return {};
}

}  // namespace gpt::ops::cpu
