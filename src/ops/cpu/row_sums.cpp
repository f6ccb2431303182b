#include <algorithm>
#include <array>

#include "ops/kernels.h"
#include "ops/row_arguments.h"

namespace gpt::ops::cpu {
namespace {

// One part after another, `stride` values apart, for so many columns at a time that their sums stay in registers.
template <class T>
void add_parts(T* gradient, bool is_added, const float* parts, int64_t n, int64_t stride, int64_t C) {
  constexpr int64_t kColumns = 32;
  for (int64_t begin = 0; begin < C; begin += kColumns) {
    const int64_t columns = std::min(kColumns, C - begin);
    std::array<float, kColumns> sums{};
    if (is_added) std::copy_n(gradient + begin, columns, sums.begin());
    const float* part = parts + begin;
    for (int64_t i = 0; i < n; ++i, part += stride) {
      for (int64_t c = 0; c < columns; ++c) sums[c] += part[c];
    }
    std::copy_n(sums.begin(), columns, gradient + begin);
  }
}

}  // namespace

at::Tensor sum_rows(const at::Tensor& /*x*/) { return {}; }

void add_row_sums(c10::ArrayRef<parameters::Parameter> parameters, const at::Tensor& parts) {
  const int64_t n = parts.size(0), stride = parts.stride(0), C = parts.size(-1);
  const float* part = read<float>(parts);
  for (const parameters::Parameter& parameter : parameters) {
    const at::Tensor& gradient = parameter.gradient();
    const bool is_added = parameter.begin_contribution();
    gradient.scalar_type() == at::kFloat ? add_parts(write<float>(gradient), is_added, part, n, stride, C)
                                         : add_parts(write<c10::BFloat16>(gradient), is_added, part, n, stride, C);
    part += C;
  }
}

}  // namespace gpt::ops::cpu
