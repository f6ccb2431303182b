#include "product_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "gpt/core/statistics.h"

namespace gpt::ops {
namespace {

bool is_transposed(const at::Tensor& x) { return !x.is_contiguous() && x.t().is_contiguous(); }

}  // namespace

std::optional<ProductKey> key_of(const Product& product) {
  const at::Tensor &a = product.a, &b = product.b, &result = product.result;
  const at::ScalarType type = a.scalar_type(), result_type = result.scalar_type();
  const bool has_16_bits = type == at::kBFloat16 || type == at::kHalf;
  if (type != b.scalar_type() || (!has_16_bits && type != at::kFloat)) return std::nullopt;
  if (result_type != type && !(has_16_bits && result_type == at::kFloat)) return std::nullopt;
  if (a.numel() == 0 || b.numel() == 0) return std::nullopt;
  for (const at::Tensor& factor : {a, b})
    if (!factor.is_contiguous() && !is_transposed(factor)) return std::nullopt;
  const std::array all{result, product.bias, product.gelu, product.gelu_input, product.sums, product.sums_of_a, a, b};
  constexpr size_t kFactors = 2;  // the last ones
  for (const at::Tensor& x : std::span(all).first(all.size() - kFactors))
    if (x.defined() && (!x.is_contiguous() || x.scalar_type() != result_type)) return std::nullopt;
  int64_t alignment = 256;
  for (const at::Tensor& x : all) {
    const auto address = x.defined() ? reinterpret_cast<uintptr_t>(x.const_data_ptr()) : 0;
    if (address % 16 != 0) return std::nullopt;
    if (address % 256 != 0) alignment = 16;
  }
  return ProductKey{.rows = a.size(0),
                    .columns = b.size(1),
                    .inner = a.size(1),
                    .type = type,
                    .result_type = result_type,
                    .a_transposed = is_transposed(a),
                    .b_transposed = is_transposed(b),
                    .adds = product.adds,
                    .has_bias = product.bias.defined(),
                    .has_gelu = product.gelu.defined(),
                    .has_gelu_slope = product.gelu_input.defined(),
                    .has_sums_of_a = product.sums_of_a.defined(),
                    .alignment = alignment};
}

std::string name_of(const ProductKey& key) {
  return fmt::format("{} x {} x {}{}{}{}{}", key.rows, key.columns, key.inner, key.has_bias ? " with bias" : "",
                     key.has_gelu ? " with GELU" : "", key.has_gelu_slope ? " with GELU's slope" : "",
                     key.has_sums_of_a ? " with sums of a factor" : "");
}

StoredProduct stored(const ProductKey& key) {
  const auto [M, N, K] = std::array{key.rows, key.columns, key.inner};
  const auto factor = [](int64_t rows, int64_t columns, bool transposed) {
    return transposed ? StoredMatrix{rows, columns, true} : StoredMatrix{columns, rows, false};
  };
  return {.first = factor(K, N, key.b_transposed), .second = factor(M, K, key.a_transposed), .result = {N, M, false}};
}

Fastest fastest(const std::vector<std::vector<double>>& seconds) {
  constexpr double kNoise = 0.02;
  Fastest result;
  for (size_t way = 0; way < seconds.size(); ++way) {
    const double time = median(seconds[way]);
    if (way == 0) result.seconds = result.first_seconds = time;
    if (time < result.seconds && time < (1 - kNoise) * result.first_seconds) result.way = way, result.seconds = time;
  }
  return result;
}

}  // namespace gpt::ops
