#include "gpt/products/quantized_product.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>

#include "gpt/simd/cpu_capability.h"
#include "quantized_product_kernel.h"

namespace gpt::ops {
namespace cpu {

GPT_CPU_KERNEL(QuantizedProductKernel, quantized_product)

#if defined(__x86_64__)
namespace AVX512_VNNI {
extern const QuantizedProductKernel quantized_product;
}
#endif

namespace {

constexpr int64_t kLeastQuantizedProducts = 1 << 17;  // for a thread: below, waking it costs more than it saves

static_assert(kQuantizedGroup == parameters::QuantizedWeight::kGroup);

const QuantizedProductKernel& best_kernel() {
#if defined(__x86_64__)
  static const bool has_vnni = __builtin_cpu_supports("avx512vnni");
  if (has_vnni && capability() >= Capability::AVX512) return AVX512_VNNI::quantized_product;
#endif
  return best_quantized_product();
}

int64_t padded_terms(int64_t columns) { return at::divup(columns, kTerms) * kTerms; }

int64_t panel_bytes(parameters::QuantizedType type, int64_t columns) {
  const int64_t terms = padded_terms(columns);
  return type == parameters::QuantizedType::int8 ? panel_bytes_int8(terms) : panel_bytes_int4(terms);
}

// Where the scale of a row's group is within a panel of int8, and the code of a term.
constexpr int64_t kGroupBytesInt8 = panel_bytes_int8(kQuantizedGroup),
                  kGroupBytesInt4 = panel_bytes_int4(kQuantizedGroup);

int64_t scale_place_int8(int64_t row, int64_t group) {
  return group * kGroupBytesInt8 + row * static_cast<int64_t>(sizeof(float));
}
int64_t code_place_int8(int64_t row, int64_t term) {
  const int64_t within = term % kQuantizedGroup;
  return term / kQuantizedGroup * kGroupBytesInt8 + kPanelStep + within / 4 * kPanelStep + row * 4 + within % 4;
}

// Row `row` of the weight into its panel.
void pack_int8(const parameters::QuantizedWeight& weight, int64_t row, uint8_t* panel) {
  const auto* codes = weight.codes.const_data_ptr<int8_t>() + row * weight.columns;
  const auto* scales = weight.scales.const_data_ptr<float>() + row * weight.groups();
  const int64_t place = row % kPanelRows;
  for (int64_t group = 0; group < weight.groups(); ++group)
    std::memcpy(panel + scale_place_int8(place, group), scales + group, sizeof(float));
  for (int64_t term = 0; term < weight.columns; ++term)
    panel[code_place_int8(place, term)] = static_cast<uint8_t>(codes[term] + 128);
}

void pack_int4(const parameters::QuantizedWeight& weight, int64_t row, uint8_t* panel) {
  constexpr size_t kSize = sizeof(c10::BFloat16);
  const auto* codes = weight.codes.const_data_ptr<uint8_t>() + row * weight.codes.size(1);
  const int64_t place = row % kPanelRows;
  for (int64_t group = 0; group < weight.groups(); ++group) {
    uint8_t* to = panel + group * kGroupBytesInt4;
    const int64_t number = row * weight.groups() + group;
    std::memcpy(to + place * kSize, weight.scales.const_data_ptr<c10::BFloat16>() + number, kSize);
    std::memcpy(to + (kPanelRows + place) * kSize, weight.offsets.const_data_ptr<c10::BFloat16>() + number, kSize);
    const int64_t begin = group * kQuantizedGroup, end = std::min(weight.columns, begin + kQuantizedGroup);
    for (int64_t term = begin; term < end; ++term) {
      const int code = codes[term / 2] >> (term % 2 == 0 ? 0 : 4) & 15, within = static_cast<int>(term - begin);
      to[kPanelStep + within / 8 * kPanelStep + place * 4 + within % 4] |=
          static_cast<uint8_t>(within % 8 < 4 ? code : code << 4);
    }
  }
}

// Rows of activations in 8 bits.
struct QuantizedRows {
  at::Tensor codes, scales, sums;  // (M, terms) int8; (M, groups) float32; (M, groups) int32

  QuantizedRows(const at::Tensor& rows, const QuantizedProductKernel& kernel) {
    const at::Tensor x = rows.contiguous();
    const int64_t M = x.size(0), K = x.size(1), terms = padded_terms(K), groups = activation_groups(terms);
    codes = at::empty({M, terms}, at::kChar);
    scales = at::empty({M, groups}, at::kFloat);
    sums = at::empty({M, groups}, at::kInt);
    const auto* from = x.const_data_ptr<float>();
    auto* to = codes.mutable_data_ptr<int8_t>();
    auto* scale = scales.mutable_data_ptr<float>();
    auto* sum = sums.mutable_data_ptr<int32_t>();
    at::parallel_for(0, M, std::max<int64_t>(1, kLeastQuantizedProducts / K), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        kernel.quantize_row(from + row * K, K, terms, to + row * terms, scale + row * groups, sum + row * groups);
    });
  }
};

}  // namespace
}  // namespace cpu

PackedWeight pack(const parameters::QuantizedWeight& weight) {
  const int64_t panels = at::divup(weight.rows, cpu::kPanelRows), bytes = cpu::panel_bytes(weight.type, weight.columns);
  const bool is_int8 = weight.type == parameters::QuantizedType::int8;
  // Codes that no weight has are multiplied by terms that are 0, or belong to columns that nobody asks for.
  PackedWeight packed{weight.type, weight.rows, weight.columns,
                      at::zeros({panels * cpu::kPanelRows, bytes / cpu::kPanelRows}, at::kByte)};
  auto* to = packed.panels.mutable_data_ptr<uint8_t>();
  at::parallel_for(0, panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin * cpu::kPanelRows; row < std::min(weight.rows, end * cpu::kPanelRows); ++row) {
      uint8_t* panel = to + row / cpu::kPanelRows * bytes;
      is_int8 ? cpu::pack_int8(weight, row, panel) : cpu::pack_int4(weight, row, panel);
    }
  });
  return packed;
}

at::Tensor quantized_product(const at::Tensor& rows, const PackedWeight& weight, const at::Tensor& bias) {
  TORCH_CHECK(rows.is_cpu() && rows.dim() == 2 && rows.scalar_type() == at::kFloat && rows.size(1) == weight.columns,
              "quantized_product: needs float32 rows of ", weight.columns, " values on a CPU, got ", rows.sizes(), " ",
              rows.scalar_type());
  TORCH_CHECK(!bias.defined() ||
                  (bias.scalar_type() == at::kFloat && bias.is_contiguous() && bias.numel() == weight.rows),
              "quantized_product: the bias must have a float32 value for each row of the weight");
  const cpu::QuantizedProductKernel& kernel = cpu::best_kernel();
  const cpu::QuantizedRows x(rows, kernel);
  const at::Tensor y = at::empty({rows.size(0), weight.rows}, rows.options());
  const cpu::QuantizedProductArguments product{.M = rows.size(0),
                                               .K = x.codes.size(1),
                                               .N = weight.rows,
                                               .x = x.codes.const_data_ptr<int8_t>(),
                                               .x_scales = x.scales.const_data_ptr<float>(),
                                               .x_sums = x.sums.const_data_ptr<int32_t>(),
                                               .panels = weight.panels.const_data_ptr<uint8_t>(),
                                               .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
                                               .y = y.mutable_data_ptr<float>()};
  const auto multiply = weight.type == parameters::QuantizedType::int8 ? kernel.multiply_int8 : kernel.multiply_int4;
  const int64_t of_panel = product.M * product.K * cpu::kPanelRows;
  at::parallel_for(0, at::divup(product.N, cpu::kPanelRows),
                   std::max<int64_t>(1, cpu::kLeastQuantizedProducts / of_panel),
                   [&](int64_t begin, int64_t end) { multiply(product, begin, end); });
  return y;
}

at::Tensor rows_of(const PackedWeight& weight, const at::Tensor& ids) {
  TORCH_CHECK(weight.type == parameters::QuantizedType::int8 && ids.dim() == 1 && ids.scalar_type() == at::kLong &&
                  ids.is_cpu(),
              "rows_of: needs a weight of type int8 and int64 ids on a CPU");
  const at::Tensor numbers = ids.contiguous();
  const at::Tensor result = at::empty({numbers.numel(), weight.columns}, at::kFloat);
  const int64_t bytes = cpu::panel_bytes(weight.type, weight.columns);
  const auto* panels = weight.panels.const_data_ptr<uint8_t>();
  auto* to = result.mutable_data_ptr<float>();
  for (int64_t i = 0; i < numbers.numel(); ++i) {
    const int64_t id = numbers.const_data_ptr<int64_t>()[i], place = id % cpu::kPanelRows;
    TORCH_CHECK(id >= 0 && id < weight.rows, "rows_of: row ", id, " of ", weight.rows);
    const uint8_t* panel = panels + id / cpu::kPanelRows * bytes;
    for (int64_t term = 0; term < weight.columns; ++term) {
      float scale;
      std::memcpy(&scale, panel + cpu::scale_place_int8(place, term / cpu::kQuantizedGroup), sizeof scale);
      *to++ = static_cast<float>(panel[cpu::code_place_int8(place, term)] - 128) * scale;
    }
  }
  return result;
}

}  // namespace gpt::ops
