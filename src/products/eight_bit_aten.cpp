#include "eight_bit_aten.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_int_mm.h>
#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/round.h>
#include <ATen/ops/where.h>

#include <algorithm>

namespace gpt::ops {
namespace {

constexpr float kMostInt8 = 127, kMostFp8 = 448;

// LibTorch's products on a GPU want whole numbers of these rows and columns, and more rows than 16.
constexpr int64_t kMultiple = 16, kLeastRows = 32;

at::Tensor with_rows(const at::Tensor& matrix, int64_t rows) {
  return rows == matrix.size(0) ? matrix : at::constant_pad_nd(matrix, {0, 0, 0, rows - matrix.size(0)});
}

int64_t whole_rows(int64_t rows) { return std::max(kLeastRows, (rows + kMultiple - 1) / kMultiple * kMultiple); }

}  // namespace

EightBitFactor eight_bit_factor_by_aten(const at::Tensor& matrix, EightBitType type) {
  const float most = type == EightBitType::int8 ? kMostInt8 : kMostFp8;
  const at::Tensor values = matrix.to(at::kFloat);
  const at::Tensor largest = values.abs().amax(1, /*keepdim=*/true);  // (rows, 1); not a number where a value is not
  // What is not finite would be some number in 8 bits.
  const at::Tensor scales = largest / most + (largest - largest), divisors = at::where(scales > 0, scales, 1);
  const at::Tensor quotients = (values / divisors).clamp_(-most, most);
  const at::Tensor codes =
      type == EightBitType::int8 ? at::round(quotients).to(at::kChar) : quotients.to(at::kFloat8_e4m3fn);
  const int64_t rest = (kMultiple - matrix.size(1) % kMultiple) % kMultiple;
  return {type,
          matrix.size(0),
          matrix.size(1),
          rest == 0 ? codes : at::constant_pad_nd(codes, {0, rest}),
          scales.squeeze(1),
          {}};
}

at::Tensor eight_bit_product_by_aten(const EightBitFactor& a, const EightBitFactor& b, const at::Tensor& bias,
                                     at::ScalarType result) {
  const at::Tensor a_codes = with_rows(a.codes, whole_rows(a.rows)), b_codes = with_rows(b.codes, whole_rows(b.rows));
  const auto without_padding = [&](const at::Tensor& all) { return all.narrow(0, 0, a.rows).narrow(1, 0, b.rows); };
  if (a.type == EightBitType::int8) {
    const at::Tensor sums = without_padding(at::_int_mm(a_codes, b_codes.t())).to(at::kFloat);
    const at::Tensor scaled = sums.mul_(a.scales.unsqueeze(1)).mul_(b.scales);
    return (bias.defined() ? scaled.add_(bias) : scaled).to(result);
  }
  const auto scales = [](const EightBitFactor& of, const at::Tensor& codes) {
    return with_rows(of.scales.unsqueeze(1), codes.size(0));
  };
  // With a scale for each row, LibTorch's kernel writes bfloat16 alone.
  const at::Tensor product =
      without_padding(at::_scaled_mm(a_codes, b_codes.t(), scales(a, a_codes), scales(b, b_codes).t(),
                                     /*bias=*/{}, /*scale_result=*/{}, at::kBFloat16, /*use_fast_accum=*/false));
  return (bias.defined() ? product + bias : product).to(result);
}

}  // namespace gpt::ops
