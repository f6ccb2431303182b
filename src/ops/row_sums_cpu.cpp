#include <algorithm>
#include <array>

#include "kernels.h"
#include "row_arguments.h"

namespace gpt::ops::cpu {
namespace {

// One part after another, for so many columns at a time that their sums stay in registers.
template <class T>
void add_parts(T* gradient, bool is_added, const at::Tensor& parts) {
  constexpr int64_t kColumns = 32;
  const int64_t count = parts.size(0), C = parts.size(1), stride = parts.stride(0);
  for (int64_t begin = 0; begin < C; begin += kColumns) {
    const int64_t columns = std::min(kColumns, C - begin);
    std::array<float, kColumns> sums{};
    if (is_added) std::copy_n(gradient + begin, columns, sums.begin());
    const float* part = parts.const_data_ptr<float>() + begin;
    for (int64_t i = 0; i < count; ++i, part += stride) {
      for (int64_t c = 0; c < columns; ++c) sums[c] += part[c];
    }
    std::copy_n(sums.begin(), columns, gradient + begin);
  }
}

}  // namespace

void add_row_sums(const Parameter& parameter, const at::Tensor& parts) {
  const at::Tensor& gradient = parameter.gradient();
  const bool is_added = parameter.begin_contribution();
  if (gradient.scalar_type() == at::kFloat) {
    add_parts(write<float>(gradient), is_added, parts);
  } else {
    add_parts(write<c10::BFloat16>(gradient), is_added, parts);
  }
}

}  // namespace gpt::ops::cpu
