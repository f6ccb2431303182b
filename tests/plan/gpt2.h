// GPT-2, as the tests of what a run needs ask about it.
#pragma once

#include "gpt/config/config.h"

namespace gpt::plan {

inline ModelConfig gpt2(int64_t layers, int64_t heads, int64_t width) {
  ModelConfig model;
  model.n_layer = layers, model.n_head = heads, model.n_embd = width, model.block_size = 1024;
  model.norm = Norm::layernorm, model.mlp = Mlp::gelu, model.position = Position::learned;
  model.bias = true, model.dropout = 0, model.vocab_size = 50257;
  return model;
}

inline ModelConfig gpt2_small() { return gpt2(12, 12, 768); }

inline Config gpt2_small_run(int64_t batch_size, int64_t gradient_accumulation_steps = 1) {
  Config config;
  config.model = gpt2_small();
  config.training.batch_size = batch_size;
  config.training.gradient_accumulation_steps = gradient_accumulation_steps;
  return config;
}

}  // namespace gpt::plan
