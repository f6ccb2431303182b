#include "gpt/products/eight_bit_product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "eight_bit_aten.h"
#include "gpt/device/device.h"
#include "int8_product.h"

namespace gpt::ops {
namespace {

void check(const at::Tensor& matrix) {
  const auto type = matrix.scalar_type();
  TORCH_CHECK(matrix.dim() == 2 && matrix.numel() > 0 &&
                  (type == at::kFloat || type == at::kBFloat16 || (type == at::kHalf && !matrix.is_cpu())),
              "a product in 8 bits: takes a matrix of float32 or bfloat16, got ", matrix.sizes(), " of ", type);
  TORCH_CHECK(matrix.size(1) <= kMostEightBitTerms, "a product in 8 bits: sums have at most ", kMostEightBitTerms,
              " terms, got ", matrix.size(1));
}

}  // namespace

EightBitFactor first_factor(const at::Tensor& matrix, EightBitType type) {
  check(matrix);
  return matrix.is_cpu() && type == EightBitType::int8 ? cpu::int8_first_factor(matrix)
                                                       : eight_bit_factor_by_aten(matrix, type);
}

EightBitFactor second_factor(const at::Tensor& matrix, EightBitType type) {
  check(matrix);
  return matrix.is_cpu() && type == EightBitType::int8 ? cpu::int8_second_factor(matrix)
                                                       : eight_bit_factor_by_aten(matrix, type);
}

at::Tensor eight_bit_product(const EightBitFactor& a, const EightBitFactor& b, const at::Tensor& bias,
                             at::ScalarType type) {
  TORCH_CHECK(a.type == b.type && a.columns == b.columns, "a product in 8 bits: the factors have ", a.columns, " and ",
              b.columns, " columns");
  if (!b.corrections.defined()) return eight_bit_product_by_aten(a, b, bias, type);
  const at::Tensor result = at::empty({a.rows, b.rows}, type);
  cpu::int8_product(result, /*adds=*/false, a, b, bias);
  return result;
}

void eight_bit_product_out(const at::Tensor& result, bool adds, const EightBitFactor& a, const EightBitFactor& b) {
  TORCH_CHECK(a.type == b.type && a.columns == b.columns && result.size(0) == a.rows && result.size(1) == b.rows,
              "a product in 8 bits: ", a.rows, " x ", a.columns, " and ", b.rows, " x ", b.columns, " into ",
              result.sizes());
  if (b.corrections.defined() && result.is_contiguous()) return cpu::int8_product(result, adds, a, b, {});
  const at::Tensor product = eight_bit_product(a, b, {}, result.scalar_type());
  adds ? result.add_(product) : result.copy_(product);
}

int64_t second_factor_bytes(int64_t rows, int64_t columns) { return cpu::int8_second_factor_bytes(rows, columns); }

std::string eight_bit_obstacle(EightBitType type, const device::DeviceInfo& device) {
  // Compute capabilities with the instructions that LibTorch's kernels use. For fp8 those kernels have a scale for each row.
  constexpr int kInt8Capability = 75, kFp8Capability = 90;
  const bool is_fp8 = type == EightBitType::fp8;
  if (device.device.is_cpu()) return is_fp8 ? "needs a GPU, and the run is on a CPU" : "";
  const int has = 10 * device.compute_major + device.compute_minor, wanted = is_fp8 ? kFp8Capability : kInt8Capability;
  if (has >= wanted) return "";
  return fmt::format("needs a GPU of compute capability {}.{}, and {} has {}.{}", wanted / 10, wanted % 10, device.name,
                     device.compute_major, device.compute_minor);
}

}  // namespace gpt::ops
