#include "gpt/checkpoint/adapters.h"

#include <ATen/ops/mm.h>

#include <map>
#include <string>
#include <utility>

#include "gpt/layout/tuning.h"
#include "gpt/parameters/parameters.h"

namespace gpt {

void merge_adapters(Checkpoint& checkpoint) {
  TuningConfig& tuning = checkpoint.config.training.tuning;
  if (!tuning.lora.is_on()) return;
  std::map<std::string, at::Tensor> values(checkpoint.model.begin(), checkpoint.model.end());
  const std::vector<ParameterRow> adapters = adapter_rows(parameter_table(checkpoint.config.model, tuning));
  for (size_t i = 0; i < adapters.size(); i += 2) {  // A and B
    const std::string name = adapters[i].name.substr(0, adapters[i].name.rfind('.'));
    at::Tensor& weight = values.at(name + ".weight");
    const at::Tensor a = values.at(name + ".lora_A").to(at::kFloat), b = values.at(name + ".lora_B").to(at::kFloat);
    const at::Tensor sum = weight.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    const int64_t rank = tuning.lora.rank;
    int64_t of_a = 0, of_b = 0;
    for (const auto& [begin, length] : adapters[i].adapter->outputs) {
      sum.narrow(0, begin, length)
          .addmm_(b.narrow(0, of_b, length), a.narrow(0, of_a, rank), /*beta=*/1, adapters[i].adapter->scale);
      of_a += rank;
      of_b += length;
    }
    weight = sum.to(weight.scalar_type());
    values.erase(name + ".lora_A");
    values.erase(name + ".lora_B");
  }
  NamedTensors merged;
  for (const auto& [name, tensor] : checkpoint.model)
    if (const auto found = values.find(name); found != values.end()) merged.emplace_back(name, found->second);
  checkpoint.model = std::move(merged);
  tuning = {};
}

NamedTensors with_new_adapters(NamedTensors weights, const std::vector<ParameterRow>& rows, uint64_t seed) {
  const std::vector<ParameterRow> of_adapters = adapter_rows(rows);
  if (of_adapters.empty()) return weights;
  Parameters adapters(of_adapters, at::kCPU);
  adapters.draw(seed);
  for (auto& value : adapters.values()) weights.push_back(std::move(value));
  return weights;
}

}  // namespace gpt
