// Small models of the forms whose operators differ, for tests with TEST_P.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <vector>

#include "gpt/config/model_config.h"

namespace gpt::test {

struct ModelForm {
  const char* name;
  Mlp mlp;
  Norm norm;
  Position position;
  bool has_bias, is_tied;
  QkNorm qk_norm = QkNorm::none;
  NormPlace norm_place = NormPlace::input;
  bool is_gemma = false;  // norms of unit offset, a scaled embedding, and windows with a base of their own
  bool is_yarn = false;   // frequencies of RoPE that are scaled as OLMo 3 has them
};

inline void PrintTo(const ModelForm& form, std::ostream* out) { *out << form.name; }

// A model of 2 layers, 64 columns and 101 tokens, for 32 positions.
inline ModelConfig config_of(const ModelForm& form) {
  ModelConfig config;
  config.n_layer = 2, config.n_head = 4, config.n_kv_head = 2, config.n_embd = 64, config.block_size = 32;
  config.vocab_size = 101, config.dropout = 0;
  config.mlp = form.mlp, config.norm = form.norm, config.position = form.position;
  config.bias = form.has_bias, config.tie_weights = form.is_tied;
  config.qk_norm = form.qk_norm, config.norm_place = form.norm_place;
  config.norm_unit_offset = config.scaled_embedding = form.is_gemma;
  if (form.is_gemma) config.attention_window = 16, config.window_pattern = "SL", config.rope_window_theta = 100;
  if (form.is_yarn)
    config.rope_scaling = {.kind = RopeScalingKind::yarn, .factor = 4, .beta_fast = 4, .original_length = 32};
  return config;
}

// Those whose heads are apart from each other, so that processes may divide them.
inline std::vector<ModelForm> divisible_forms() {
  return {{"llama", Mlp::swiglu, Norm::rmsnorm, Position::rope, false, false},
          {"qwen3", Mlp::swiglu, Norm::rmsnorm, Position::rope, false, true, QkNorm::heads},
          {"gpt2", Mlp::gelu, Norm::layernorm, Position::learned, true, true},
          {"geglu", Mlp::geglu, Norm::layernorm, Position::rope, true, true},
          {"arcee", Mlp::relu2, Norm::rmsnorm, Position::rope, true, false},
          {"gemma3", Mlp::geglu, Norm::rmsnorm, Position::rope, false, true, QkNorm::heads, NormPlace::both, true}};
}

inline auto model_forms() {
  std::vector<ModelForm> all = divisible_forms();
  all.push_back(
      {"olmo2", Mlp::swiglu, Norm::rmsnorm, Position::rope, false, false, QkNorm::all, NormPlace::output, false, true});
  return testing::ValuesIn(all);
}

}  // namespace gpt::test
