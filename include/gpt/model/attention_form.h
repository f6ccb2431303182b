// What a model whose queries choose blocks (model.attention: blocks) cannot be combined with.
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/config/model_config.h"

namespace gpt::model {

// Throw gpt::Error(config) where the model cannot be computed on such a device, and for one that is to keep documents apart.
void require_attention_on(const ModelConfig& config, at::Device device);
void require_whole_sequences(const ModelConfig& config);

}  // namespace gpt::model
