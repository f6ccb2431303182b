#include "gpt/products/several_products.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>

#include "product_cpu.h"

namespace gpt::ops::cpu {
namespace {

using Arguments = ProductArguments<float, float>;

// Few enough for several parts of a large matrix, and so many that packing the other factor takes little of the time.
constexpr int64_t kPartRows = 256;

struct Part {
  size_t product;
  ProductPart part;
};

Arguments arguments_of(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool adds) {
  TORCH_INTERNAL_ASSERT(result.scalar_type() == at::kFloat && a.size(1) == b.size(0) && result.stride(1) == 1);
  return {.M = a.size(0),
          .K = a.size(1),
          .N = b.size(1),
          .a = factor<float>(a),
          .b = factor<float>(b),
          .result = write<float>(result),
          .result_stride = result.stride(0),
          .adds = adds,
          .bias = nullptr};
}

// A panel of columns each, from `first_row` (of a column) on.
template <class FirstRow>
std::vector<Part> parts_of(const std::vector<Arguments>& products, int64_t panel, FirstRow first_row) {
  std::vector<Part> parts;
  for (size_t i = 0; i < products.size(); ++i) {
    const int64_t M = products[i].M, N = products[i].N;
    for (int64_t column = 0; column < N; column += panel)
      for (int64_t row = first_row(column); row < M; row += kPartRows)
        parts.push_back({i, {row, std::min(row + kPartRows, M), column, std::min(column + panel, N)}});
  }
  return parts;
}

// before(i, part) and after(i, part) are called beside the kernel, for product i.
template <class Before, class After>
void compute(const std::vector<Arguments>& products, const std::vector<Part>& parts, Before before, After after) {
  const auto& kernel = float32_kernel();
  int64_t work = 0, floats = 0;
  for (const Arguments& product : products) {
    work += product.M * product.K * product.N;
    floats = std::max(floats, kernel.scratch(product, std::min(kPartRows, product.M)));
  }
  const int64_t most = std::min<int64_t>(std::ssize(parts), at::get_num_threads()),
                threads = std::max<int64_t>(1, std::min(most, work / kLeastProducts));
  const at::Tensor scratch = at::empty({threads, floats}, at::kFloat);
  auto* const memory = write<float>(scratch);
  std::atomic<size_t> next{0};
  at::parallel_for(0, threads, 1, [&](int64_t thread, int64_t) {
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < parts.size();) {
      const auto& [product, part] = parts[i];
      before(product, part);
      kernel.multiply(products[product], part, memory + thread * floats);
      after(product, part);
    }
  });
}

// What the kernel adds to.
void begin(const SymmetricProduct& product, const Arguments& arguments, const ProductPart& part) {
  const float* const added = read<float>(product.added);
  const int64_t stride = product.added.stride(0);
  for (int64_t row = part.first_row; row < part.last_row; ++row) {
    float* const to = arguments.result + row * arguments.result_stride;
    for (int64_t column = part.first_column; column < part.last_column; ++column)
      to[column] = product.added_times * added[row * stride + column];
    if (part.first_column <= row && row < part.last_column) to[row] += product.diagonal;
  }
}

// The rows below the part's own columns become columns beside its own rows, which no other part writes.
void mirror(const Arguments& arguments, const ProductPart& part) {
  const int64_t stride = arguments.result_stride, first = std::max(part.first_row, part.last_column);
  if (first >= part.last_row) return;
  transpose_kernel()(arguments.result + first * stride + part.first_column, stride, part.last_row - first,
                     part.last_column - part.first_column, arguments.result + part.first_column * stride + first,
                     stride);
}

}  // namespace

void multiply_together(const std::vector<PlainProduct>& products) {
  std::vector<Arguments> arguments;
  for (const auto& [result, a, b] : products) arguments.push_back(arguments_of(result, a, b, /*adds=*/false));
  const auto nothing = [](size_t, const ProductPart&) {};
  compute(arguments, parts_of(arguments, float32_kernel().panel_columns, [](int64_t) { return 0; }), nothing, nothing);
}

void multiply_together(const std::vector<SymmetricProduct>& products) {
  std::vector<Arguments> arguments;
  for (const SymmetricProduct& product : products)
    arguments.push_back(arguments_of(product.result, product.a, product.b, product.added.defined()));
  compute(
      arguments, parts_of(arguments, float32_kernel().panel_columns, [](int64_t column) { return column; }),
      [&](size_t i, const ProductPart& part) {
        if (products[i].added.defined()) begin(products[i], arguments[i], part);
      },
      [&](size_t i, const ProductPart& part) { mirror(arguments[i], part); });
}

}  // namespace gpt::ops::cpu
