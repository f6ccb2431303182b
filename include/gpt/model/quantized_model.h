// A model whose matrices have 8 or 4 bits a weight, to compute with and not to train. The table of token embeddings, which a tied head
// shares, and a head of its own have 8 bits in either case: their errors reach every token directly. Biases, normalizations and position
// embeddings are float32.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/config/model_config.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/model/gpt.h"
#include "gpt/parameters/named_tensors.h"
#include "gpt/parameters/quantized_weight.h"

namespace gpt::model {

struct QuantizedTensors {
  parameters::QuantizedType type = parameters::QuantizedType::int8;  // of the layers
  std::vector<std::pair<std::string, parameters::QuantizedWeight>> matrices;
  parameters::NamedTensors others;  // float32

  int64_t bytes() const;
};

// How a parameter is kept in a model of this type; nothing: in float32.
std::optional<parameters::QuantizedType> quantized_type(const layout::ParameterRow& row,
                                                        parameters::QuantizedType of_model);

// `values`: those of the parameter table, on the CPU; each is let go of once it is quantized. Throws gpt::Error: checkpoint as
// tensors_of_rows() does, numerics for a value that is not finite.
QuantizedTensors quantize(const ModelConfig& config, parameters::NamedTensors values, parameters::QuantizedType type);

// The tensors are those that quantize() made of this model's.
std::unique_ptr<GPT> quantized_gpt(const ModelConfig& config, QuantizedTensors tensors);

// What the weights of a model take in memory, packed or not.
int64_t weight_bytes(const GPT& model);

}  // namespace gpt::model
