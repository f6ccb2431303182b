// Mistral, Llama with one window in all layers, and Ministral, with the same window in some of them. llama.cpp computes Mistral's own files
// as Llama, without windows, and what has them as granite_swa.
#include "exchange/families/granite_swa.h"
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

constexpr Limit kMistralLimitsOfMlx[] = {{"", is_every_model, "reads its models as Llama's, without windows"}};
constexpr const Architecture* kMistralArchitectures[] = {&kGraniteSwa};

}  // namespace

const Family kMistralFamily = {.name = "Mistral",
                               .form = "rmsnorm, swiglu, rope, a window in all layers",
                               .model_type = "mistral",
                               .architectures = kMistralArchitectures,
                               .set_form = set_mistral_form,
                               .counterparts = llama_counterparts,
                               .config_json = mistral_json,
                               .read_config = read_mistral,
                               .ctranslate2_limits = kOfCTranslate2,
                               .mlx_lm_limits = kMistralLimitsOfMlx};

const Family kMinistralFamily = {.name = "Ministral",
                                 .form = "rmsnorm, swiglu, rope, a window in some layers",
                                 .model_type = "ministral",
                                 .architectures = kMistralArchitectures,
                                 .set_form = set_blocks_with_windows,
                                 .counterparts = llama_counterparts,
                                 .config_json = ministral_json,
                                 .read_config = read_ministral,
                                 .ctranslate2_limits = kNoSuchFamily,
                                 .mlx_lm_limits = kNoSuchFamily};

}  // namespace gpt::exchange
