// Adapters of a model, of any rank and products, and the weights that it has with one of them.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gpt/layout/parameter_table.h"
#include "gpt/ops/row_adapters.h"
#include "gpt/parameters/named_tensors.h"

namespace gpt::test {

// Adapters of all products with these roles, whose queries have one of their own; what is added is about as large as a product of weights
// that are `size` large.
inline std::vector<ops::AdapterFactors> some_adapter(const ModelConfig& config,
                                                     const std::vector<layout::ParameterRole>& roles, int64_t rank,
                                                     double size, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  std::vector<ops::AdapterFactors> factors;
  for (const layout::ParameterRow& row : layout::parameter_table(config)) {
    if (row.is_bias || std::ranges::find(roles, row.role) == roles.end()) continue;
    const auto add = [&](layout::RowCut::Piece outputs, int64_t own) {
      const double of_each = size / std::sqrt(static_cast<double>(own));
      factors.push_back({{row.role, row.layer},
                         outputs,
                         at::randn({own, row.shape[1]}, generator),
                         of_each * at::randn({outputs.length, own}, generator)});
    };
    const int64_t queries = row.role == layout::ParameterRole::attention_in ? row.query_rows : 0;
    if (queries > 0) add({0, queries}, rank + 1);
    add({queries, row.shape[0] - queries}, rank);
  }
  return factors;
}

inline parameters::NamedTensors with_adapter(const ModelConfig& config, parameters::NamedTensors weights,
                                             const std::vector<ops::AdapterFactors>& adapter) {
  const std::vector<layout::ParameterRow> rows = layout::parameter_table(config);
  for (const auto& [site, outputs, a, b] : adapter) {
    const auto row = std::ranges::find_if(rows, [&](const layout::ParameterRow& one) {
      return !one.is_bias && one.role == site.role && one.layer == site.layer;
    });
    at::Tensor& weight = std::ranges::find(weights, row->name, &std::pair<std::string, at::Tensor>::first)->second;
    weight = weight.clone();
    weight.narrow(0, outputs.begin, outputs.length).add_(at::mm(b, a));
  }
  return weights;
}

}  // namespace gpt::test
