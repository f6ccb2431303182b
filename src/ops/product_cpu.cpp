#include "product_cpu.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "cpu_capability.h"
#include "gpt/device/host.h"
#include "product_kernel.h"
#include "row_arguments.h"

namespace gpt::ops::cpu {

using Float32Kernel = ProductKernel<float, float>;
GPT_CPU_KERNEL(Float32Kernel, product_float32)

namespace AVX512_BF16 {
extern const ProductKernel<c10::BFloat16, c10::BFloat16> product_bfloat16;
extern const ProductKernel<c10::BFloat16, float> product_bfloat16_in_float32;
}  // namespace AVX512_BF16

namespace {

// Packing a column of the second factor takes as long as multiplying it with so many rows.
constexpr int64_t kPackingRows = 16;

// Products that a thread adds at least: below, waking it costs more than it saves.
constexpr int64_t kLeastProducts = 1 << 18;

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t rounded_up(int64_t n, int64_t multiple) { return divided_up(n, multiple) * multiple; }

bool is_transposed(const at::Tensor& x) { return x.stride(1) != 1; }

// Neighbours in one of the dimensions must lie next to each other.
at::Tensor dense(const at::Tensor& x) { return x.stride(0) == 1 || x.stride(1) == 1 ? x : x.contiguous(); }

template <class T>
ProductFactor<T> factor(const at::Tensor& x) {
  return {read<T>(x), x.stride(is_transposed(x) ? 1 : 0), is_transposed(x)};
}

// Rows and columns of each thread's part of a result (M, N).
struct Division {
  int64_t rows, columns;
};

// Of the divisions that take nearly the least time, that with the fewest rows for each: what a thread has written, as other operators
// divide rows, it finds in its own cache.
Division divide(int64_t M, int64_t N, int64_t threads, int64_t tile_rows, int64_t lanes) {
  constexpr double kNearly = 1.05;
  const auto with_rows = [&](int64_t parts) {
    return Division{rounded_up(divided_up(M, parts), tile_rows), rounded_up(divided_up(N, threads / parts), lanes)};
  };
  const auto time = [](const Division& division) {
    return static_cast<double>(division.columns * (division.rows + kPackingRows));
  };
  double least = time(with_rows(1));
  for (int64_t parts = 2; parts <= threads; ++parts) least = std::min(least, time(with_rows(parts)));
  int64_t parts = threads;
  while (time(with_rows(parts)) > kNearly * least) --parts;
  return with_rows(parts);
}

template <class T, class R>
void multiply(const Product& product, const ProductKernel<T, R>& kernel) {
  const at::Tensor a = dense(product.a), b = dense(product.b);
  const at::Tensor& result = product.result;
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
  const Division division = divide(M, N, threads, kernel.tile_rows, kernel.lanes);
  const int64_t row_parts = divided_up(M, division.rows), column_parts = divided_up(N, division.columns),
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

bool has_own_products(at::ScalarType type) {
  static const bool has_matrices = host::cpu_has_bfloat16_matrices();
  return type == at::kFloat || (type == at::kBFloat16 && capability() == Capability::AVX512_BF16 && !has_matrices);
}

bool can_multiply(const at::Tensor& a, const at::Tensor& b, at::ScalarType result) {
  if (a.size(1) == 0 || (result != at::kFloat && result != a.scalar_type())) return false;
  // sum: the dimension along which products are added.
  const auto has_pairs = [](const at::Tensor& x, int64_t sum) {
    return x.stride(sum) != 1 || (x.size(sum) % 2 == 0 && x.stride(1 - sum) % 2 == 0);
  };
  return a.scalar_type() == at::kFloat || (has_pairs(dense(a), 1) && has_pairs(dense(b), 0));
}

void multiply(const Product& product) {
  if (product.a.scalar_type() == at::kFloat) return multiply(product, best_product_float32());
  product.result.scalar_type() == at::kFloat ? multiply(product, AVX512_BF16::product_bfloat16_in_float32)
                                             : multiply(product, AVX512_BF16::product_bfloat16);
}

}  // namespace gpt::ops::cpu
