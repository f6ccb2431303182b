#include "gpt/config/block_form.h"

namespace gpt {

NormForm final_norm_form(const ModelConfig& config) {
  return {config.norm, config.norm_eps, config.bias && config.norm == Norm::layernorm};
}

BlockForm block_form(const ModelConfig& config, int64_t layer) {
  BlockForm form{.norm = final_norm_form(config),
                 .head_norm = {},
                 .rotary = {},
                 .window = config.window(layer),
                 .attention_in_bias = config.bias || config.qkv_bias,
                 .attention_out_bias = config.bias,
                 .mlp = {config.mlp, config.hidden(), config.bias}};
  if (config.qk_norm) form.head_norm = NormForm{Norm::rmsnorm, config.norm_eps, /*has_bias=*/false};
  if (config.rotates(layer)) form.rotary = RotaryForm{config.rope_theta, config.rope_scaling};
  return form;
}

}  // namespace gpt
