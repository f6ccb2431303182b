#include "gpt/config/tuning_config.h"

#include <cmath>

#include "gpt/config/option.h"
#include "gpt/config/word_list.h"

namespace gpt {

double LoraConfig::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha_value() / (is_rank_stabilized ? std::sqrt(r) : r);
}

namespace config {

std::vector<Option> options(TuningConfig& c) {
  return {
      {.name = "freeze",
       .target = word_list(c.freeze),
       .help =
           "parameters that stay as they are, such as 'wte, h.0-5' for the embedding and the first six blocks or 'h.*.attn' for "
           "all attention, without gradient, moments and float32 copy; [] = none",
       .tried = {"[]", "[h.0]"}},
      {.name = "lora_rank",
       .target = &c.lora.rank,
       .help =
           "train low-rank adapters of this rank (LoRA), such as 16, beside the weights of init_from, which stay as they are; "
           "0 = train the weights themselves",
       .min = 0,
       .max = 4096,
       .aliases = {{"lora_r"}},
       .tried = {"0", "4"}},
      {.name = "lora_alpha",
       .target = FoundNumber{&c.lora.alpha, &c.lora.is_alpha_automatic},
       .help = "adapters are multiplied by lora_alpha / lora_rank; auto = twice the rank",
       .min = 1e-6,
       .max = 1e6},
      {.name = "lora_rank_stabilized",
       .target = &c.lora.is_rank_stabilized,
       .help = "multiply adapters by lora_alpha / sqrt(lora_rank) instead, which suits large ranks (rsLoRA)",
       .aliases = {{"use_rslora"}}},
      {.name = "lora_targets",
       .target = word_list(c.lora.targets),
       .help =
           "products that have adapters: of attention q_proj, k_proj, v_proj and o_proj, of the MLP gate_proj, up_proj and down_proj; "
           "all-linear = all of them"},
      {.name = "lora_base",
       .target = choice(c.lora.base, {{"auto", BaseType::automatic},
                                      {"bfloat16", BaseType::bfloat16},
                                      {"int8", BaseType::int8},
                                      {"int4", BaseType::int4}}),
       .help =
           "what the weights that adapters go with are kept in, on a CPU; int8 and int4 = rounded, with scales for each 64 of them (QLoRA); "
           "auto = the type that the run computes with"},
      {.name = "lora_dropout",
       .target = &c.lora.dropout,
       .help = "dropout of what goes into the adapters, and into nothing else, as peft has it",
       .min = 0,
       .max = 0.99,
       .tried = {"0", "0.1"}},
      {.name = "lora_also_train",
       .target = word_list(c.lora.also_train),
       .help =
           "what is trained whole beside the adapters: embeddings, norms, or parameters named as in freeze, such as 'wte, ln_f'; "
           "[] = nothing",
       .aliases = {{"modules_to_save"}, {"lora_modules_to_save"}},
       .tried = {"[]", "[norms]"}},
  };
}

}  // namespace config
}  // namespace gpt
