#include "gpt/parameters/frozen_matrix.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "gpt/core/error.h"

namespace gpt::parameters {

FrozenMatrix::FrozenMatrix(const at::Tensor& value, BaseType type) {
  TORCH_CHECK(type != BaseType::automatic, "FrozenMatrix: needs a type");
  if (type == BaseType::bfloat16) {
    narrow_ = value.detach().to(at::kBFloat16, /*non_blocking=*/false, /*copy=*/true);
  } else {
    quantized_ = quantize(value, type == BaseType::int8 ? QuantizedType::int8 : QuantizedType::int4);
  }
}

at::Tensor FrozenMatrix::unpacked(at::ScalarType type) const {
  return narrow_.defined() ? narrow_.to(type) : dequantize(quantized_, type);
}

at::Tensor FrozenMatrix::rows_of(const at::Tensor& ids, at::ScalarType type) const {
  return narrow_.defined() ? narrow_.index_select(0, ids).to(type) : dequantize_rows(quantized_, ids, type);
}

std::vector<at::Tensor> FrozenMatrix::tensors() const {
  std::vector<at::Tensor> all;
  for (const at::Tensor& part : {narrow_, quantized_.codes, quantized_.scales, quantized_.offsets})
    if (part.defined()) all.push_back(part);
  return all;
}

int64_t FrozenMatrix::bytes() const {
  int64_t sum = 0;
  for (const at::Tensor& part : tensors()) sum += static_cast<int64_t>(part.nbytes());
  return sum;
}

int64_t frozen_bytes(const layout::ParameterRow& row) {
  if (row.kept == BaseType::bfloat16) return 2 * row.count();
  const int64_t rows = row.shape[0], columns = row.shape[1],
                groups = rows * ((columns + QuantizedWeight::kGroup - 1) / QuantizedWeight::kGroup);
  return (row.kept == BaseType::int8 ? row.count() : rows * ((columns + 1) / 2)) + 4 * groups;
}

RowPacker::RowPacker(const std::vector<layout::ParameterRow>& rows) {
  for (const layout::ParameterRow& row : rows)
    if (row.is_narrow()) types_.emplace(row.name, row.kept);
}

at::Tensor RowPacker::take(const std::string& name, const at::Tensor& value) {
  const auto type = types_.find(name);
  if (type == types_.end()) return value;
  if (!value.isfinite().all().item<bool>())
    throw Error(ExitCode::checkpoint, fmt::format("'{}' holds values that are not finite", name));
  matrices.insert_or_assign(name, FrozenMatrix(value, type->second));
  return at::zeros({}).expand(value.sizes());
}

}  // namespace gpt::parameters
