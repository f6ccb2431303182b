// The model that is made of what is kept of another one: its configuration and its weights.
#pragma once

#include <vector>

#include "gpt/config/model_config.h"
#include "gpt/parameters/named_tensors.h"
#include "gpt/prune/selection.h"

namespace gpt::prune {

// The smaller model's heads are as wide as they were, which model.head_dim says where it does not follow from the others any more.
ModelConfig smaller_config(ModelConfig model, const std::vector<KeptLayer>& kept);

// `weights`: of `model`, which they must fit. Of the same types, on the same device; in the order of the smaller model's table.
parameters::NamedTensors smaller_weights(const ModelConfig& model, const parameters::NamedTensors& weights,
                                         const std::vector<KeptLayer>& kept);

}  // namespace gpt::prune
