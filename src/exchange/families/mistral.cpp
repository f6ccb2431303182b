// Mistral, Llama with one window in all layers, and Ministral, with the same window in some of them. llama.cpp computes Mistral's own files
// as Llama, without windows. What has windows and Llama's other parts there is Granite's architecture granite_swa, which also has sinks:
// a score for each head that takes part in the softmax, and of which very low ones are none.
#include <fmt/format.h>

#include "exchange/families/llama.h"

namespace gpt::exchange {
namespace {

// The other settings are Llama's, and there are no biases.
void set_blocks_with_windows(ModelConfig& model) {
  const int64_t window = model.attention_window;
  set_llama_blocks(model);
  model.bias = false;
  model.attention_window = window;
}

void set_mistral_form(ModelConfig& model) {
  set_blocks_with_windows(model);
  model.window_pattern.assign(static_cast<size_t>(model.n_layer), 'S');
}

nlohmann::ordered_json mistral_json(const ModelConfig& m) {
  nlohmann::ordered_json file{{"architectures", {"MistralForCausalLM"}}, {"model_type", "mistral"}};
  file.update(llama_settings(m));
  file["sliding_window"] = layer_windows_json(m)["sliding_window"];
  return file;
}

nlohmann::ordered_json ministral_json(const ModelConfig& m) {
  nlohmann::ordered_json file{{"architectures", {"MinistralForCausalLM"}}, {"model_type", "ministral"}};
  file.update(llama_settings(m));
  file.update(layer_windows_json(m));
  return file;
}

ModelConfig read_mistral(const ConfigSettings& s) {
  ModelConfig m = read_llama_settings(s);
  m.attention_window = read_window(s);
  m.window_pattern = 'S', m.last_layer_full = false;
  return m;
}

ModelConfig read_ministral(const ConfigSettings& s) {
  ModelConfig m = read_mistral(s);
  read_layer_types(s, m);
  return m;
}

std::vector<ArchitectureKey> granite_keys(const ModelConfig& m) {
  std::vector<ArchitectureKey> keys = llama_keys(m);
  keys.push_back({"logit_scale", 1.0f});
  keys.push_back({"attention.sliding_window", static_cast<uint32_t>(m.attention_window)});
  keys.push_back(window_pattern_key(m));
  return keys;
}

std::vector<GgufConstant> no_sinks(const ModelConfig& m) {
  constexpr float kNone = -1e30f;
  std::vector<GgufConstant> sinks;
  for (int64_t layer = 0; layer < m.n_layer; ++layer)
    sinks.push_back({fmt::format("blk.{}.attn_sinks.weight", layer), m.heads(), kNone});
  return sinks;
}

}  // namespace

const Family kMistralFamily = {.name = "Mistral",
                               .form = "rmsnorm, swiglu, rope, a window in all layers",
                               .model_type = "mistral",
                               .architecture = "granite_swa",
                               .set_form = set_mistral_form,
                               .counterparts = llama_counterparts,
                               .config_json = mistral_json,
                               .read_config = read_mistral,
                               .architecture_keys = granite_keys,
                               .gguf_constants = no_sinks,
                               .reads_rope_divisors = true};

const Family kMinistralFamily = {.name = "Ministral",
                                 .form = "rmsnorm, swiglu, rope, a window in some layers",
                                 .model_type = "ministral",
                                 .architecture = "granite_swa",
                                 .set_form = set_blocks_with_windows,
                                 .counterparts = llama_counterparts,
                                 .config_json = ministral_json,
                                 .read_config = read_ministral,
                                 .architecture_keys = granite_keys,
                                 .gguf_constants = no_sinks,
                                 .reads_rope_divisors = true};

}  // namespace gpt::exchange
