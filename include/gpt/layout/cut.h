// Tensor parallelism: which part of every parameter each process of a group has. Heads and the hidden columns of the MLP are dealt out
// evenly, and the rows of the vocabulary as evenly as they can be; normalizations, learned positions and the biases of products that are
// added up over the processes are whole in each of them. That sizes can be divided so, config/tensor_parallel.h has made sure.
#pragma once

#include <cstdint>
#include <vector>

#include "gpt/config/model_config.h"
#include "gpt/layout/parameter_table.h"

namespace gpt {

// Which of so many parts of a model.
struct ModelPart {
  int64_t rank = 0, size = 1;
};

// The rows of the token embedding and of the head that a part has: [begin, end) of `padded` ones.
FlatSpan vocabulary_rows(int64_t padded, const ModelPart& part);

// The table of a part, from that of the whole model; the order and the names stay.
std::vector<ParameterRow> cut(std::vector<ParameterRow> rows, const ModelConfig& model, const ModelPart& part);

// A model of its own whose tensors have the shapes of the largest part: for what a process keeps and computes.
ModelConfig largest_part(ModelConfig model, int64_t parts);

}  // namespace gpt
