// Mistral, Llama with one window in all layers, and Ministral, with the same window in some of them. Transformers has both; llama.cpp
// computes them as Llama, without windows.
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

std::vector<Counterpart> mistral_counterparts(const ModelConfig& model) {
  return llama_counterparts(model, /*turns_neighbours=*/true);
}

nlohmann::ordered_json window_json(const ModelConfig& m) {
  return m.windowed_layers() > 0 ? nlohmann::ordered_json(m.attention_window) : nullptr;
}

nlohmann::ordered_json mistral_json(const ModelConfig& m) {
  nlohmann::ordered_json file{{"architectures", {"MistralForCausalLM"}}, {"model_type", "mistral"}};
  file.update(llama_settings(m));
  file["sliding_window"] = window_json(m);
  return file;
}

nlohmann::ordered_json ministral_json(const ModelConfig& m) {
  nlohmann::ordered_json file{{"architectures", {"MinistralForCausalLM"}}, {"model_type", "ministral"}};
  file.update(llama_settings(m));
  file["sliding_window"] = window_json(m);
  for (int64_t layer = 0; layer < m.n_layer; ++layer)
    file["layer_types"].push_back(m.window(layer) > 0 ? "sliding_attention" : "full_attention");
  return file;
}

// Without the key the window has 4,096 positions, as in transformers; null means that there is none.
int64_t read_window(const ConfigSettings& s) {
  constexpr int64_t kOtherwise = 4096;
  return s.is_null("sliding_window") ? 0 : s.count("sliding_window", kOtherwise);
}

ModelConfig read_mistral(const ConfigSettings& s) {
  ModelConfig m = read_llama_settings(s);
  m.attention_window = read_window(s);
  m.window_pattern = 'S', m.last_layer_full = false;
  return m;
}

ModelConfig read_ministral(const ConfigSettings& s) {
  ModelConfig m = read_mistral(s);
  if (s.has("layer_types"))
    m.window_pattern = s.pattern("layer_types", m.n_layer, {{"sliding_attention", 'S'}, {"full_attention", 'L'}});
  return m;
}

std::string mistral_llama_cpp_limit(const ModelConfig& m) {
  return m.windowed_layers() > 0 ? "its architecture llama, which Mistral's models have there, has no windows" : "";
}

}  // namespace

const Family kMistralFamily = {.name = "Mistral",
                               .form = "rmsnorm, swiglu, rope, a window in all layers",
                               .model_type = "mistral",
                               .architecture = "llama",
                               .set_form = set_mistral_form,
                               .counterparts = mistral_counterparts,
                               .config_json = mistral_json,
                               .read_config = read_mistral,
                               .architecture_keys = llama_keys,
                               .llama_cpp_limit = mistral_llama_cpp_limit};

const Family kMinistralFamily = {.name = "Ministral",
                                 .form = "rmsnorm, swiglu, rope, a window in some layers",
                                 .model_type = "ministral",
                                 .architecture = "llama",
                                 .set_form = set_blocks_with_windows,
                                 .counterparts = mistral_counterparts,
                                 .config_json = ministral_json,
                                 .read_config = read_ministral,
                                 .architecture_keys = llama_keys,
                                 .llama_cpp_limit = mistral_llama_cpp_limit};

}  // namespace gpt::exchange
