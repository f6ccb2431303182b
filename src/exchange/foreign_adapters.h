// Adapters of a run as other programs have them: a pair of factors for each matrix that is one there.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "gpt/checkpoint/state.h"
#include "gpt/exchange/families.h"

namespace gpt::exchange {

// The module of one of transformers' tensors: its name without ".weight" or ".bias".
std::string module_of(const std::string& tensor);

// Adds alpha / rank * B A to a matrix [out, in].
struct ForeignAdapter {
  Counterpart part;
  at::Tensor a, b;  // (rank, in), (out, rank), float32
  double alpha;
};

// In the order of the model's parameters. Where several adapters of ours lie within one matrix of theirs, as those of queries, keys and
// values in GPT-2's, its rank is the sum of theirs, with zeros where they do not meet.
std::vector<ForeignAdapter> foreign_adapters(const checkpoint::Checkpoint& checkpoint, const Family& family);

// Their modules of which the run has trained a parameter itself, each with all of its tensors, by name: what peft calls modules_to_save. A
// table that is also the head is both of them there.
std::map<std::string, at::Tensor> modules_trained_whole(const checkpoint::Checkpoint& checkpoint, const Family& family);

}  // namespace gpt::exchange
