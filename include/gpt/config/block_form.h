// How the block of a layer is formed: what families of models differ in, and what may differ from layer to layer. All that names a block's
// parameters, builds it or writes it for other programs goes by its form, so a family, as GPT-2 (LayerNorm, GELU, biases) and Llama
// (RMSNorm, SwiGLU, RoPE, no bias), is a value of it. What the whole model has once, such as widths and heads, is in ModelConfig.
#pragma once

#include <cstdint>
#include <optional>

#include "gpt/config/model_config.h"

namespace gpt {

struct NormForm {
  Norm kind;
  double eps;
  bool has_bias;                 // beside its weight
  bool has_unit_offset = false;  // its factor is 1 + weight

  bool operator==(const NormForm&) const = default;
};

struct RotaryForm {
  double theta;  // base of the frequencies
  RopeScaling scaling;

  bool operator==(const RotaryForm&) const = default;
};

struct MlpForm {
  Mlp kind;
  int64_t width;  // of its hidden values
  bool has_bias;  // in all its products

  bool operator==(const MlpForm&) const = default;
};

struct BlockForm {
  // Nothing: there is none.
  std::optional<NormForm> norm;       // before attention, and before the MLP
  std::optional<NormForm> out_norm;   // of what attention, and what the MLP, adds to the stream
  std::optional<NormForm> head_norm;  // of each head of queries and keys, before they are rotated
  std::optional<NormForm>
      heads_norm;  // of all heads of a token's queries together, and of its keys, before they are rotated
  std::optional<RotaryForm> rotary;  // of queries and keys; nothing: they are not rotated
  int64_t window;                    // positions that a query sees, its own among them; 0: all up to its own
  bool attention_in_bias;            // of queries, keys and values
  bool attention_out_bias;
  MlpForm mlp;

  bool operator==(const BlockForm&) const = default;
};

BlockForm block_form(const ModelConfig& config, int64_t layer);
NormForm final_norm_form(const ModelConfig& config);  // behind the blocks
int64_t norms_of_block(const ModelConfig& config);    // of the stream, and of what is added to it

}  // namespace gpt
