#include "int8_product.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "gpt/parameters/pointers.h"
#include "gpt/simd/cpu_capability.h"
#include "int8_product_kernel.h"

namespace gpt::ops::cpu {

GPT_CPU_KERNEL(Int8Kernel, int8_product)

#if defined(__x86_64__)
namespace AVX512_VNNI {
extern const Int8Kernel int8_product;
}
#endif

namespace {

// For a thread: below, waking it costs more than it saves.
constexpr int64_t kLeastRounded = 1 << 15, kLeastInt8Products = 1 << 19;

// Rows lie so far apart that those of a tile are not at the same place of a cache.
constexpr int64_t kBetweenRows = 64;

// Rows of a thread's part of a product: with fewer, it reads the second factor for little.
constexpr int64_t kLeastRowsOfPart = 64;

const Int8Kernel& best_int8_kernel() {
#if defined(__x86_64__)
  static const bool has_vnni = __builtin_cpu_supports("avx512vnni");
  if (has_vnni && capability() >= Capability::AVX512) return AVX512_VNNI::int8_product;
#endif
  return best_int8_product();
}

int64_t padded(int64_t columns) { return at::divup(columns, kInt8Terms) * kInt8Terms; }

// Rounds rows of a contiguous matrix; returns a row's scale.
class RowRounding {
 public:
  RowRounding(const at::Tensor& matrix, bool is_first)
      : kernel_(best_int8_kernel()), matrix_(matrix), columns_(matrix.size(1)), is_first_(is_first) {}

  float operator()(int64_t row, int8_t* codes) const {
    const int64_t terms = padded(columns_);
    if (matrix_.scalar_type() == at::kFloat)
      return kernel_.round_float(matrix_.const_data_ptr<float>() + row * columns_, columns_, terms, is_first_, codes);
    return kernel_.round_bfloat16(matrix_.const_data_ptr<c10::BFloat16>() + row * columns_, columns_, terms, is_first_,
                                  codes);
  }

 private:
  const Int8Kernel& kernel_;
  const at::Tensor& matrix_;
  const int64_t columns_;
  const bool is_first_;
};

}  // namespace

EightBitFactor int8_first_factor(const at::Tensor& matrix) {
  const at::Tensor by_rows = matrix.contiguous();
  const int64_t rows = matrix.size(0), columns = matrix.size(1), stride = padded(columns) + kBetweenRows;
  const EightBitFactor result{
      EightBitType::int8, rows, columns, at::empty({rows, stride}, at::kChar), at::empty({rows}, at::kFloat), {}};
  auto* codes = result.codes.mutable_data_ptr<int8_t>();
  auto* scales = result.scales.mutable_data_ptr<float>();
  const RowRounding round(by_rows, /*is_first=*/true);
  at::parallel_for(0, rows, at::divup(kLeastRounded, columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) scales[row] = round(row, codes + row * stride);
  });
  return result;
}

EightBitFactor int8_second_factor(const at::Tensor& matrix) {
  const at::Tensor by_rows = matrix.contiguous();
  const int64_t rows = matrix.size(0), columns = matrix.size(1), terms = padded(columns),
                panels = at::divup(rows, kInt8Columns);
  const EightBitFactor result{EightBitType::int8,
                              rows,
                              columns,
                              at::empty({panels, terms, kInt8Columns}, at::kChar),
                              at::zeros({panels * kInt8Columns}, at::kFloat),
                              at::empty({panels * kInt8Columns}, at::kInt)};
  auto* codes = result.codes.mutable_data_ptr<int8_t>();
  auto* scales = result.scales.mutable_data_ptr<float>();
  auto* corrections = result.corrections.mutable_data_ptr<int32_t>();
  const RowRounding round(by_rows, /*is_first=*/false);
  const int64_t grain = std::max<int64_t>(1, kLeastRounded / (terms * kInt8Columns));
  at::parallel_for(0, panels, grain, [&](int64_t begin, int64_t end) {
    const at::Tensor memory = at::empty({kInt8Columns, terms}, at::kChar);
    auto* of_panel = memory.mutable_data_ptr<int8_t>();
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t first = panel * kInt8Columns, count = std::min(kInt8Columns, rows - first);
      for (int64_t i = 0; i < count; ++i) scales[first + i] = round(first + i, of_panel + i * terms);
      std::fill(of_panel + count * terms, of_panel + kInt8Columns * terms, int8_t{0});
      best_int8_kernel().pack(of_panel, terms, codes + panel * terms * kInt8Columns, corrections + first);
    }
  });
  return result;
}

void int8_product(const at::Tensor& result, bool adds, const EightBitFactor& a, const EightBitFactor& b,
                  const at::Tensor& bias) {
  const at::Tensor wide_bias = bias.defined() ? bias.to(at::kFloat).contiguous() : bias;
  const int64_t M = a.rows, N = b.rows, panels = at::divup(N, kInt8Columns), terms = padded(a.columns);
  const Int8Arguments arguments{.terms = terms,
                                .codes = a.codes.const_data_ptr<int8_t>(),
                                .stride = a.codes.size(1),
                                .scales = a.scales.const_data_ptr<float>(),
                                .panels = b.codes.const_data_ptr<int8_t>(),
                                .panel_scales = b.scales.const_data_ptr<float>(),
                                .corrections = b.corrections.const_data_ptr<int32_t>(),
                                .bias = read<float>(wide_bias),
                                .columns = N};
  const Int8Kernel& kernel = best_int8_kernel();
  const int64_t threads = std::clamp<int64_t>(M * terms * N / kLeastInt8Products, 1, at::get_num_threads()),
                row_parts = std::clamp<int64_t>(M / kLeastRowsOfPart, 1, threads),
                column_parts = std::min(at::divup(threads, row_parts), panels);
  at::parallel_for(0, row_parts * column_parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / column_parts, column = i % column_parts;
      const Int8Part part{row * M / row_parts, (row + 1) * M / row_parts, column * panels / column_parts,
                          (column + 1) * panels / column_parts};
      if (result.scalar_type() == at::kFloat) {
        kernel.multiply_float(arguments, part, adds, result.mutable_data_ptr<float>());
      } else {
        kernel.multiply_bfloat16(arguments, part, adds, result.mutable_data_ptr<c10::BFloat16>());
      }
    }
  });
}

int64_t int8_second_factor_bytes(int64_t rows, int64_t columns) {
  constexpr int64_t kOfRow = sizeof(float) + sizeof(int32_t);
  return at::divup(rows, kInt8Columns) * kInt8Columns * (padded(columns) + kOfRow);
}

}  // namespace gpt::ops::cpu
