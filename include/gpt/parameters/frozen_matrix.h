// Matrices that are not trained, in fewer bits than the model computes with: of bfloat16, or quantized (quantized_weight.h). A product
// unpacks the one that it needs, forward and back, which is little beside multiplying many rows by it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gpt/layout/parameter_table.h"
#include "gpt/parameters/quantized_weight.h"

namespace gpt::parameters {

class FrozenMatrix {
 public:
  FrozenMatrix() = default;
  // `value` (rows, columns) on the CPU, finite, in one of these types other than automatic. The same for every number of threads.
  FrozenMatrix(const at::Tensor& value, BaseType type);

  bool defined() const { return narrow_.defined() || quantized_.codes.defined(); }
  // (rows, columns) of `type`, float32 or bfloat16, which may be this memory itself where it has that type.
  at::Tensor unpacked(at::ScalarType type) const;
  // The rows `ids` (N) int64: (N, columns). Throws c10::Error for one that it does not have.
  at::Tensor rows_of(const at::Tensor& ids, at::ScalarType type) const;
  std::vector<at::Tensor> tensors() const;  // all that it consists of
  int64_t bytes() const;

 private:
  at::Tensor narrow_;  // bfloat16, or undefined
  QuantizedWeight quantized_;
};

using FrozenMatrices = std::map<std::string, FrozenMatrix, std::less<>>;

// What a row takes that is_narrow().
int64_t frozen_bytes(const layout::ParameterRow& row);

// Packs rows as soon as each of them has been read, so that only one at a time is there in full.
class RowPacker {
 public:
  explicit RowPacker(const std::vector<layout::ParameterRow>& rows);  // those of them that are narrow

  // What stands for the value of a row: itself; or, where it has been packed, zeros of its shape, which take no memory.
  at::Tensor take(const std::string& name, const at::Tensor& value);

  FrozenMatrices matrices = {};

 private:
  std::map<std::string, BaseType, std::less<>> types_;
};

}  // namespace gpt::parameters
