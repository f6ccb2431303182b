// Adapters (training.lora_rank) and the weights that they go with.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gpt/checkpoint/state.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/parameters/named_tensors.h"

namespace gpt::checkpoint {

// Adds adapters, where the run trains any, to the weights that they go with, and leaves them out: the model that other programs know. The sum
// is computed in float32.
void merge_adapters(Checkpoint& checkpoint);

// One of the products that A and B of a weight stand for.
struct ProductAdapter {
  layout::RowCut::Piece outputs;  // which of the weight's
  at::Tensor a, b;                // (rank, inputs), (outputs, rank)
};
std::vector<ProductAdapter> product_adapters(const layout::AdapterPart& part, const at::Tensor& a, const at::Tensor& b);

// What an adapter adds to a weight: scale * B A, to the rows `outputs`.
struct WeightAdapter {
  std::string weight;  // a name of the parameter table
  ProductAdapter product;
  double scale;
};
// All adapters of a run, whose model may be its adapters alone.
std::vector<WeightAdapter> weight_adapters(const Checkpoint& checkpoint);

// The adapters of a checkpoint, with the model that they go with by its name: it is neither looked for nor read. Throws gpt::Error(checkpoint)
// also where the file has no such model, or has weights beside its adapters.
Checkpoint load_adapters_alone(const std::string& path);

// The weights of a model with new adapters beside them, for those of these rows that are any.
parameters::NamedTensors with_new_adapters(parameters::NamedTensors weights,
                                           const std::vector<layout::ParameterRow>& rows, uint64_t seed);

}  // namespace gpt::checkpoint
