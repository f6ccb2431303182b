#include "gpt/model/quantized_model.h"

#include <fmt/format.h>

#include <map>

#include "gpt/core/error.h"
#include "gpt/ops/quantized_weights.h"

namespace gpt::model {

int64_t QuantizedTensors::bytes() const {
  int64_t sum = 0;
  for (const auto& [name, weight] : matrices) sum += weight.bytes();
  for (const auto& [name, tensor] : others) sum += static_cast<int64_t>(tensor.nbytes());
  return sum;
}

std::optional<parameters::QuantizedType> quantized_type(const layout::ParameterRow& row,
                                                        parameters::QuantizedType of_model) {
  if (!layout::is_product_matrix(row)) return std::nullopt;
  return layout::is_vocabulary(row.role) ? parameters::QuantizedType::int8 : of_model;
}

QuantizedTensors quantize(const ModelConfig& config, parameters::NamedTensors values, parameters::QuantizedType type) {
  const std::vector<layout::ParameterRow> rows = layout::parameter_table(config);
  std::vector<at::Tensor> tensors = parameters::tensors_of_rows(rows, values, "model");
  values.clear();
  QuantizedTensors result{.type = type, .matrices = {}, .others = {}};
  for (size_t i = 0; i < rows.size(); ++i) {
    const at::Tensor value = std::exchange(tensors[i], {}).detach();
    if (!value.isfinite().all().item<bool>())
      throw Error(ExitCode::numerics, fmt::format("'{}' holds values that are not finite", rows[i].name));
    if (const auto of_row = quantized_type(rows[i], type)) {
      result.matrices.emplace_back(rows[i].name, quantize(value, *of_row));
    } else {
      result.others.emplace_back(rows[i].name, value.to(at::kFloat));
    }
  }
  return result;
}

std::unique_ptr<GPT> quantized_gpt(const ModelConfig& config, QuantizedTensors tensors) {
  std::map<std::string, at::Tensor> values(tensors.others.begin(), tensors.others.end());
  std::vector<ops::PackedWeight> packed;
  for (auto& [name, weight] : tensors.matrices) {
    packed.push_back(ops::pack(std::exchange(weight, {})));
    values[name] = packed.back().panels;
  }
  const std::vector<layout::ParameterRow> rows = layout::parameter_table(config);
  std::vector<at::Tensor> of_rows;
  for (const layout::ParameterRow& row : rows) of_rows.push_back(values.at(row.name));
  return std::make_unique<GPT>(config, parameters::Parameters(rows, of_rows), ops::quantized_weight_operators(packed));
}

int64_t weight_bytes(const GPT& model) {
  int64_t sum = 0;
  for (const auto& [name, value] : model.parameters().values()) sum += static_cast<int64_t>(value.nbytes());
  return sum;
}

}  // namespace gpt::model
