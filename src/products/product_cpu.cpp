#include "product_cpu.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "gpt/device/cpu_bfloat16.h"
#include "gpt/simd/cpu_capability.h"

namespace gpt::ops::cpu {

using Float32Kernel = ProductKernel<float, float>;
GPT_CPU_KERNEL(Float32Kernel, product_float32)
GPT_CPU_KERNEL(TransposeKernel, transpose_float32)

#define GPT_BFLOAT16_PRODUCTS(CAPABILITY)                                       \
  namespace CAPABILITY {                                                        \
  extern const ProductKernel<c10::BFloat16, c10::BFloat16> product_bfloat16;    \
  extern const ProductKernel<c10::BFloat16, float> product_bfloat16_in_float32; \
  }
GPT_BFLOAT16_PRODUCTS(AVX512_BF16)
GPT_BFLOAT16_PRODUCTS(AVX512_AMX)

namespace {

// Rows and columns of each thread's part of a result (M, N).
struct Division {
  int64_t rows, columns;
};

// Among the divisions that take nearly the least time, the one with the fewest rows for each: what a thread has written, as other
// operators divide rows, it finds in its own cache.
template <class Kernel>
Division divide(int64_t M, int64_t N, int64_t threads, const Kernel& kernel) {
  constexpr double kNearly = 1.05;
  const auto with_rows = [&](int64_t parts) {
    return Division{at::divup(at::divup(M, parts), kernel.tile_rows) * kernel.tile_rows,
                    at::divup(at::divup(N, threads / parts), kernel.lanes) * kernel.lanes};
  };
  const auto time = [&](const Division& division) {
    return static_cast<double>(division.columns * (division.rows + kernel.packing_rows));
  };
  double least = time(with_rows(1));
  for (int64_t parts = 2; parts <= threads; ++parts) least = std::min(least, time(with_rows(parts)));
  int64_t parts = threads;
  while (time(with_rows(parts)) > kNearly * least) --parts;
  return with_rows(parts);
}

template <class T, class R>
void multiply(const Product& product, const ProductKernel<T, R>& kernel) {
  const at::Tensor &a = product.a, &b = product.b, &result = product.result;
  const int64_t M = a.size(0), K = a.size(1), N = b.size(1);
  TORCH_INTERNAL_ASSERT(N <= 1 || result.stride(1) == 1);
  const ProductArguments<T, R> arguments{.M = M,
                                         .K = K,
                                         .N = N,
                                         .a = factor<T>(a),
                                         .b = factor<T>(b),
                                         .result = write<R>(result),
                                         .result_stride = result.stride(0),
                                         .adds = product.adds,
                                         .bias = read<R>(product.bias)};
  const int64_t threads = std::clamp<int64_t>(M * K * N / kLeastProducts, 1, at::get_num_threads());
  const Division division = divide(M, N, threads, kernel);
  const int64_t row_parts = at::divup(M, division.rows), column_parts = at::divup(N, division.columns),
                floats = kernel.scratch(arguments, std::min(division.rows, M));
  const at::Tensor scratch = at::empty({row_parts * column_parts, floats}, at::kFloat);
  auto* memory = write<float>(scratch);
  at::parallel_for(0, row_parts * column_parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / column_parts * division.rows, column = i % column_parts * division.columns;
      kernel.multiply(arguments,
                      {row, std::min(row + division.rows, M), column, std::min(column + division.columns, N)},
                      memory + i * floats);
    }
  });
}

}  // namespace

bool can_multiply(const Product& product) {
  const at::Tensor &a = product.a, &b = product.b, &result = product.result;
  const auto takes = [&](const at::Tensor& x, int64_t dimension_of_sum) {
    if (x.stride(0) != 1 && x.stride(1) != 1) return false;
    const bool sums_neighbours = x.stride(dimension_of_sum) == 1;
    return x.scalar_type() == at::kFloat || !sums_neighbours ||
           (x.size(dimension_of_sum) % 2 == 0 && x.stride(1 - dimension_of_sum) % 2 == 0);
  };
  const bool has_kernel = a.scalar_type() == at::kFloat
                              ? result.scalar_type() == at::kFloat
                              : a.scalar_type() == at::kBFloat16 && device::dot_product_gain() > 0 &&
                                    (result.scalar_type() == at::kBFloat16 || result.scalar_type() == at::kFloat);
  return has_kernel && a.size(1) > 0 && takes(a, 1) && takes(b, 0);
}

const Float32Kernel& float32_kernel() { return best_product_float32(); }
TransposeKernel transpose_kernel() { return best_transpose_float32(); }

void multiply(const Product& product) {
  if (product.a.scalar_type() == at::kFloat) return multiply(product, best_product_float32());
  const bool in_float32 = product.result.scalar_type() == at::kFloat;
  if (capability() == Capability::AVX512_AMX) {
    in_float32 ? multiply(product, AVX512_AMX::product_bfloat16_in_float32)
               : multiply(product, AVX512_AMX::product_bfloat16);
  } else {
    in_float32 ? multiply(product, AVX512_BF16::product_bfloat16_in_float32)
               : multiply(product, AVX512_BF16::product_bfloat16);
  }
}

}  // namespace gpt::ops::cpu
