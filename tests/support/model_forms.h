// Small models of the forms whose operators differ, for tests with TEST_P.
#pragma once

#include <gtest/gtest.h>

#include <ostream>

#include "gpt/config/model_config.h"

namespace gpt::test {

struct ModelForm {
  const char* name;
  Mlp mlp;
  Norm norm;
  Position position;
  bool has_bias, is_tied;
  bool normalizes_heads = false;
};

inline void PrintTo(const ModelForm& form, std::ostream* out) { *out << form.name; }

// Of 2 layers, 64 columns and 101 tokens, for 32 positions.
inline ModelConfig config_of(const ModelForm& form) {
  ModelConfig config;
  config.n_layer = 2, config.n_head = 4, config.n_kv_head = 2, config.n_embd = 64, config.block_size = 32;
  config.vocab_size = 101, config.dropout = 0;
  config.mlp = form.mlp, config.norm = form.norm, config.position = form.position;
  config.bias = form.has_bias, config.tie_weights = form.is_tied;
  config.qk_norm = form.normalizes_heads;
  return config;
}

inline auto model_forms() {
  return testing::Values(ModelForm{"llama", Mlp::swiglu, Norm::rmsnorm, Position::rope, false, false},
                         ModelForm{"qwen3", Mlp::swiglu, Norm::rmsnorm, Position::rope, false, true, true},
                         ModelForm{"gpt2", Mlp::gelu, Norm::layernorm, Position::learned, true, true},
                         ModelForm{"geglu", Mlp::geglu, Norm::layernorm, Position::rope, true, true});
}

}  // namespace gpt::test
