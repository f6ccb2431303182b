// SmolLM3: Llama with layers that do not rotate queries and keys (NoPE). Transformers has a list of them; llama.cpp's architecture of the name has
// every fourth layer so, and granite_swa any.
#include <fmt/format.h>

#include "exchange/families/granite_swa.h"
#include "exchange/families/llama.h"

namespace gpt::exchange {
namespace {

void set_smollm3_form(ModelConfig& model) {
  const ModelConfig own = model;
  set_llama_blocks(model);
  model.bias = false;
  model.rope_pattern = own.rope_pattern;
  model.attention_window = own.attention_window;
}

nlohmann::ordered_json smollm3_json(const ModelConfig& m) {
  nlohmann::ordered_json file{{"architectures", {"SmolLM3ForCausalLM"}}, {"model_type", "smollm3"}};
  file.update(llama_settings(m));
  file.update(layer_windows_json(m));
  for (int64_t layer = 0; layer < m.n_layer; ++layer)
    file["no_rope_layers"].push_back(m.rotates(layer) ? 1 : 0);  // whatever its name says
  file.update({{"attention_bias", false}, {"mlp_bias", false}, {"use_sliding_window", m.attention_window > 0}});
  return file;
}

// The letters of a pattern in which every so-manyth layer does not rotate.
std::string every(int64_t interval) { return fmt::format("{:R>{}}", 'N', interval); }

void read_rotations(const ConfigSettings& s, ModelConfig& m) {
  if (s.has("no_rope_layers")) {
    m.rope_pattern = s.pattern("no_rope_layers", m.n_layer, {{1, 'R'}, {0, 'N'}});
    return;
  }
  constexpr int64_t kMostLayers = 1024;
  const int64_t interval = s.count("no_rope_layer_interval", 4);
  if (interval > kMostLayers) s.refuse("no_rope_layer_interval", "no model has so many layers");
  m.rope_pattern = every(interval);
}

// Windows, where they are used, are those of the layers that do not rotate, unless the file says of which.
void read_smollm3_windows(const ConfigSettings& s, ModelConfig& m) {
  if (!s.flag("use_sliding_window", false)) return require_full_layers(s, m);
  m.attention_window = s.count("sliding_window"), m.last_layer_full = false;
  m.window_pattern = m.rope_pattern;
  for (char& layer : m.window_pattern) layer = layer == 'N' ? 'S' : 'L';
  read_layer_types(s, m);
}

ModelConfig read_smollm3(const ConfigSettings& s) {
  constexpr double kTheta = 2e6;
  ModelConfig m = read_llama_settings(s, kTheta);
  s.must_be("attention_bias", {false});
  s.must_be("mlp_bias", {false});
  m.tie_weights = s.flag("tie_word_embeddings", true);
  read_rotations(s, m);
  read_smollm3_windows(s, m);
  return m;
}

bool has_other_rotations(const ModelConfig& m) {
  constexpr int64_t kInterval = 4;
  for (int64_t layer = 0; layer < m.n_layer; ++layer)
    if (m.rotates(layer) != ((layer + 1) % kInterval != 0)) return true;
  return false;
}

bool has_windows(const ModelConfig& m) { return m.attention_window > 0; }

constexpr Limit kSmolLM3Limits[] = {{"windows", has_windows, "has no windows"},
                                    {"another `rope_pattern` than `RRRN`", has_other_rotations,
                                     "has model.rope_pattern RRRN"},
                                    kNoLlama3};
const Architecture kSmolLM3Architecture = {.name = "smollm3", .keys = llama_keys, .limits = kSmolLM3Limits};
constexpr const Architecture* kSmolLM3Architectures[] = {&kSmolLM3Architecture, &kGraniteSwa};

}  // namespace

const Family kSmolLM3Family = {.name = "SmolLM3",
                               .form = "rmsnorm, swiglu, rope in some layers, windows in some",
                               .model_type = "smollm3",
                               .architectures = kSmolLM3Architectures,
                               .set_form = set_smollm3_form,
                               .counterparts = llama_counterparts,
                               .config_json = smollm3_json,
                               .read_config = read_smollm3,
                               .ctranslate2_limits = kNoSuchFamily};

}  // namespace gpt::exchange
