#include "gpt/products/row_product.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "gpt/simd/cpu_capability.h"
#include "row_product_kernel.h"

namespace gpt::ops {
namespace cpu {

GPT_CPU_KERNEL(RowProductKernel<float>, row_product_float32)
GPT_CPU_KERNEL(RowProductKernel<c10::BFloat16>, row_product_bfloat16)
GPT_CPU_KERNEL(RowProductKernel<c10::Half>, row_product_float16)

namespace {

constexpr int64_t kLeastTerms = 1 << 16;  // for a thread: below, waking it costs more than it saves
constexpr int64_t kColumns = 12;          // that a kernel computes together, or a multiple of that

template <class W>
void multiply_rows(const RowProductKernel<W>& kernel, const at::Tensor& rows, const at::Tensor& weight,
                   const at::Tensor& bias, const at::Tensor& y) {
  at::Tensor x = rows.contiguous();
  if (kernel.arrange) {
    const at::Tensor arranged = at::empty(x.sizes(), x.options());
    const auto* const from = x.const_data_ptr<float>();
    auto* const to = arranged.mutable_data_ptr<float>();
    for (int64_t begin = 0; begin < x.numel(); begin += x.size(1)) kernel.arrange(from + begin, x.size(1), to + begin);
    x = arranged;
  }
  const RowProductArguments<W> product{.M = rows.size(0),
                                       .K = rows.size(1),
                                       .N = weight.size(0),
                                       .x = x.const_data_ptr<float>(),
                                       .weight = weight.const_data_ptr<W>(),
                                       .bias = bias.defined() ? bias.const_data_ptr<W>() : nullptr,
                                       .y = y.mutable_data_ptr<float>()};
  const int64_t grain = std::max<int64_t>(1, kLeastTerms / (kColumns * std::max<int64_t>(1, product.K)));
  at::parallel_for(0, at::divup(product.N, kColumns), grain, [&](int64_t begin, int64_t end) {
    kernel.multiply(product, begin * kColumns, std::min(product.N, end * kColumns));
  });
}

}  // namespace
}  // namespace cpu

bool has_few_rows(const at::Tensor& rows, const at::Tensor& weight) {
  return rows.is_cpu() && rows.dim() == 2 && rows.size(0) <= kMostFewRows && rows.scalar_type() == at::kFloat &&
         weight.is_contiguous() &&
         (weight.scalar_type() == at::kFloat || weight.scalar_type() == at::kBFloat16 ||
          weight.scalar_type() == at::kHalf);
}

at::Tensor row_product(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias) {
  TORCH_CHECK(has_few_rows(rows, weight) && rows.size(1) == weight.size(1),
              "row_product: needs few float32 rows on a CPU and a contiguous weight of the same width, got ",
              rows.sizes(), " and ", weight.sizes());
  TORCH_CHECK(!bias.defined() || (bias.scalar_type() == weight.scalar_type() && bias.is_contiguous() &&
                                  bias.numel() == weight.size(0)),
              "row_product: the bias must have a value of the weight's type for each of its rows");
  const at::Tensor y = at::empty({rows.size(0), weight.size(0)}, rows.options());
  switch (weight.scalar_type()) {
    case at::kBFloat16: cpu::multiply_rows(cpu::best_row_product_bfloat16(), rows, weight, bias, y); break;
    case at::kHalf: cpu::multiply_rows(cpu::best_row_product_float16(), rows, weight, bias, y); break;
    default: cpu::multiply_rows(cpu::best_row_product_float32(), rows, weight, bias, y);
  }
  return y;
}

}  // namespace gpt::ops
