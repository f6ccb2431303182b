// Which parameters stay as they are while a model is trained, and the adapters that are trained in their place.
#pragma once

#include <string>
#include <vector>

#include "gpt/config/tuning_config.h"
#include "gpt/layout/parameter_table.h"

namespace gpt::layout {

// The table of a run that trains all parameters but those that a pattern of `tuning.freeze` names. A pattern is a parameter's name, or the
// beginning of one up to a dot, where "transformer." may be left out; "*" stands for any part and "2-5" for these numbers: "wte", "h.0-5",
// "h.*.attn", "h.*.mlp.*.bias". A tied head and its embedding are one.
//
// With `tuning.lora` it trains adapters, whose rows follow the model's: lora_A and lora_B of each product that is a target. Targets are named
// as Hugging Face's Llama names its products, of which q_proj, k_proj and v_proj are one here, and as peft does "all-linear". Of the model's
// own parameters it trains those of `lora.also_train`: patterns as above, "embeddings" or "norms".
//
// Throws gpt::Error(config) where a pattern or target names nothing, a pattern of `lora.also_train` a product that has adapters, or nothing is
// left to be trained.
std::vector<ParameterRow> parameter_table(const ModelConfig& config, const TuningConfig& tuning);

// The same of a configuration whose vocabulary may not be known yet.
void require_tunable(ModelConfig config, const TuningConfig& tuning);

bool is_trained_whole(const ParameterRow& row);  // and not through an adapter

// The adapters among these rows.
std::vector<ParameterRow> adapter_rows(const std::vector<ParameterRow>& rows);

}  // namespace gpt::layout
