#include "gpt/checkpoint/adapters.h"

#include <ATen/ops/mm.h>

#include <map>
#include <string>
#include <utility>

#include "gpt/layout/tuning.h"
#include "gpt/parameters/parameters.h"

namespace gpt::checkpoint {

std::vector<ProductAdapter> product_adapters(const layout::AdapterPart& part, const at::Tensor& a,
                                             const at::Tensor& b) {
  std::vector<ProductAdapter> adapters;
  const int64_t rank = b.size(1);
  int64_t of_a = 0, of_b = 0;
  for (const layout::RowCut::Piece& outputs : part.outputs) {
    adapters.push_back({outputs, a.narrow(0, of_a, rank), b.narrow(0, of_b, outputs.length)});
    of_a += rank;
    of_b += outputs.length;
  }
  return adapters;
}

std::vector<WeightAdapter> weight_adapters(const Checkpoint& checkpoint) {
  const std::map<std::string, at::Tensor> values(checkpoint.model.begin(), checkpoint.model.end());
  const Config& config = checkpoint.config;
  const std::vector<layout::ParameterRow> rows =
      layout::adapter_rows(layout::parameter_table(config.model, config.training.tuning));
  std::vector<WeightAdapter> adapters;
  for (size_t i = 0; i < rows.size(); i += 2) {  // A and B
    const std::string weight = rows[i].name.substr(0, rows[i].name.rfind('.')) + ".weight";
    const layout::AdapterPart& part = *rows[i].adapter;
    for (ProductAdapter& product : product_adapters(part, values.at(rows[i].name), values.at(rows[i + 1].name)))
      adapters.push_back({weight, std::move(product), part.scale});
  }
  return adapters;
}

void merge_adapters(Checkpoint& checkpoint) {
  TuningConfig& tuning = checkpoint.config.training.tuning;
  if (!tuning.lora.is_on()) return;
  std::map<std::string, at::Tensor> values(checkpoint.model.begin(), checkpoint.model.end());
  const std::vector<layout::ParameterRow> adapters =
      layout::adapter_rows(layout::parameter_table(checkpoint.config.model, tuning));
  for (size_t i = 0; i < adapters.size(); i += 2) {  // A and B
    const std::string name = adapters[i].name.substr(0, adapters[i].name.rfind('.'));
    at::Tensor& weight = values.at(name + ".weight");
    const at::Tensor a = values.at(name + ".lora_A").to(at::kFloat), b = values.at(name + ".lora_B").to(at::kFloat);
    const at::Tensor sum = weight.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    for (const auto& [outputs, of_a, of_b] : product_adapters(*adapters[i].adapter, a, b))
      sum.narrow(0, outputs.begin, outputs.length).addmm_(of_b, of_a, /*beta=*/1, adapters[i].adapter->scale);
    weight = sum.to(weight.scalar_type());
    values.erase(name + ".lora_A");
    values.erase(name + ".lora_B");
  }
  parameters::NamedTensors merged;
  for (const auto& [name, tensor] : checkpoint.model)
    if (const auto found = values.find(name); found != values.end()) merged.emplace_back(name, found->second);
  checkpoint.model = std::move(merged);
  checkpoint.base.reset(), checkpoint.from_base.clear();
  tuning = {};
}

parameters::NamedTensors with_new_adapters(parameters::NamedTensors weights,
                                           const std::vector<layout::ParameterRow>& rows, uint64_t seed) {
  const std::vector<layout::ParameterRow> of_adapters = layout::adapter_rows(rows);
  if (of_adapters.empty()) return weights;
  parameters::Parameters adapters(of_adapters, at::kCPU);
  adapters.draw(seed);
  for (auto& value : adapters.values()) weights.push_back(std::move(value));
  return weights;
}

}  // namespace gpt::checkpoint
