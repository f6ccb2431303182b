#include "gpt/config/block_form.h"

namespace gpt {

NormForm final_norm_form(const ModelConfig& config) {
  return {config.norm, config.norm_eps, config.bias && config.norm == Norm::layernorm, config.norm_unit_offset};
}

int64_t norms_of_block(const ModelConfig& config) { return config.norm_place == NormPlace::both ? 4 : 2; }

BlockForm block_form(const ModelConfig& config, int64_t layer) {
  const NormForm norm = final_norm_form(config);
  BlockForm form{.norm = {},
                 .out_norm = {},
                 .head_norm = {},
                 .heads_norm = {},
                 .rotary = {},
                 .window = config.window(layer),
                 .attention_in_bias = config.bias || config.qkv_bias,
                 .attention_out_bias = config.bias,
                 .mlp = {config.mlp, config.hidden(), config.bias}};
  if (config.norm_place != NormPlace::output) form.norm = norm;
  if (config.norm_place != NormPlace::input) form.out_norm = norm;
  const NormForm of_queries{Norm::rmsnorm, config.norm_eps, /*has_bias=*/false, config.norm_unit_offset};
  if (config.qk_norm == QkNorm::heads) form.head_norm = of_queries;
  if (config.qk_norm == QkNorm::all) form.heads_norm = of_queries;
  if (config.rotates(layer)) form.rotary = RotaryForm{config.rope_theta, config.rope_scaling};
  if (form.rotary && config.has_window(layer) && config.rope_window_theta > 0)
    form.rotary = RotaryForm{config.rope_window_theta, {}};
  return form;
}

}  // namespace gpt
