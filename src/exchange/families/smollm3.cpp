// SmolLM3: Llama with layers that do not rotate queries and keys (NoPE). Transformers has a list of them; in llama.cpp it is every fourth.
#include <fmt/format.h>

#include "exchange/families/llama.h"

namespace gpt::exchange {
namespace {

void set_smollm3_form(ModelConfig& model) {
  const std::string pattern = model.rope_pattern;
  set_llama_blocks(model);
  model.bias = false;
  model.rope_pattern = pattern;
}

nlohmann::ordered_json smollm3_json(const ModelConfig& m) {
  nlohmann::ordered_json file{{"architectures", {"SmolLM3ForCausalLM"}}, {"model_type", "smollm3"}};
  file.update(llama_settings(m));
  for (int64_t layer = 0; layer < m.n_layer; ++layer) {
    file["no_rope_layers"].push_back(m.rotates(layer) ? 1 : 0);  // whatever its name says
    file["layer_types"].push_back("full_attention");
  }
  file.update({{"attention_bias", false}, {"mlp_bias", false}, {"use_sliding_window", false}});
  return file;
}

// The letters of a pattern in which every so-manyth layer does not rotate.
std::string every(int64_t interval) { return fmt::format("{:R>{}}", 'N', interval); }

ModelConfig read_smollm3(const ConfigSettings& s) {
  constexpr double kTheta = 2e6;
  ModelConfig m = read_llama_settings(s, kTheta);
  s.must_be("attention_bias", {false});
  s.must_be("mlp_bias", {false});
  require_full_layers(s, m);
  m.tie_weights = s.flag("tie_word_embeddings", true);
  if (s.has("no_rope_layers")) {
    m.rope_pattern = s.pattern("no_rope_layers", m.n_layer, {{1, 'R'}, {0, 'N'}});
    return m;
  }
  constexpr int64_t kMostLayers = 1024;
  const int64_t interval = s.count("no_rope_layer_interval", 4);
  if (interval > kMostLayers) s.refuse("no_rope_layer_interval", "no model has so many layers");
  m.rope_pattern = every(interval);
  return m;
}

std::string smollm3_llama_cpp_limit(const ModelConfig& m) {
  constexpr int64_t kInterval = 4;
  for (int64_t layer = 0; layer < m.n_layer; ++layer)
    if (m.rotates(layer) != ((layer + 1) % kInterval != 0))
      return fmt::format(
          "in its architecture smollm3 every fourth layer does not rotate (model.rope_pattern {}), and here it is {}",
          every(kInterval), m.rope_pattern);
  return "";
}

}  // namespace

const Family kSmolLM3Family = {.name = "SmolLM3",
                               .form = "rmsnorm, swiglu, rope in some layers",
                               .model_type = "smollm3",
                               .architecture = "smollm3",
                               .set_form = set_smollm3_form,
                               .counterparts = llama_counterparts,
                               .config_json = smollm3_json,
                               .read_config = read_smollm3,
                               .architecture_keys = llama_keys,
                               .llama_cpp_limit = smollm3_llama_cpp_limit};

}  // namespace gpt::exchange
